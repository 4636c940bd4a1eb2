#if PACELINE_WITH_GRPC

#include "paceline/ps/transports/grpc_door.h"

#include <fmt/format.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/server_posix.h>
#include <sys/stat.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/base/log.h"

namespace paceline::ps {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kAcceptedStuck = 10s;  // for a connection that does not take what the server writes
constexpr std::size_t kMostVisitors = 64;    // connections in addition to those of the workers that have joined
constexpr Nanoseconds kTlsAnswer = 2s;       // for a server that has just proved itself to finish TLS; it allows a client no more either

/// 0 if there is no such descriptor.
ino_t inode_of(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

std::optional<comm::TlsContext> tls_of(const Security& security) {
  if (!uses_tls(security)) return std::nullopt;
  return comm::TlsContext({.certificate = security.certificate, .key = security.key, .authority = security.authority});
}

std::string_view purpose(bool tls) { return tls ? comm::kForServersOverTls : comm::kForServers; }

/// A channel, and the relay that it needs for its whole lifetime.
struct Encrypted {
  comm::Relay relay;
  std::shared_ptr<grpc::Channel> channel;  // destroyed first
};

std::shared_ptr<grpc::Channel> encrypted_channel(const std::string& address, const comm::TlsContext& tls, comm::Socket socket,
                                                 Nanoseconds answer, const comm::Deadline& until) {
  auto session = comm::TlsSession::as_client(tls, host_of(address));
  comm::connect_tls(session, socket, until.or_sooner(kTlsAnswer));
  auto whole = std::make_shared<Encrypted>();
  comm::Socket plain = whole->relay.carry(std::move(session), std::move(socket));
  whole->channel = grpc::CreateCustomInsecureChannelFromFd(address, plain.release(), channel_arguments(answer));
  return {whole, whole->channel.get()};
}

[[noreturn]] void refuse_mismatch(const std::string& address, bool tls) {
  throw ConfigError(
      tls ? fmt::format("the server at {} does not use TLS, but this worker does; give both sides certificates, or neither "
                        "(ps.certificate, ps.key, ps.authority)",
                        address)
          : fmt::format("the server at {} uses TLS, but this worker does not; set ps.certificate, ps.key and ps.authority", address));
}

}  // namespace

Door::Door(const std::string& address, const Security& security) : address_(address), security_(security), tls_(tls_of(security)) {
  check_exposure(address, security);
}

void Door::open(grpc::Server& server, std::function<std::size_t()> workers) {
  comm::Socket listener;
  try {
    listener = comm::listen_at(socket_address(address_));
    port_ = comm::port_of(listener);
  } catch (const std::system_error& error) {
    throw ConfigError(fmt::format("cannot listen at {}: {}; another program may use the port, or the address is not this host's", address_,
                                  error.code().message()));
  }
  server_ = &server;
  workers_ = std::move(workers);
  if (tls_) relay_.emplace();
  const comm::Reception::Mistake mistake{purpose(!tls_),
                                         tls_ ? "it does not use TLS, but this server does; give both sides certificates, or neither"
                                              : "it uses TLS, but this server does not; give both sides certificates, or neither"};
  reception_.emplace(
      std::move(listener), security_.secret, purpose(tls_.has_value()),
      [this](comm::Socket socket, const std::string& peer) { let_in(std::move(socket), peer); }, mistake);
}

void Door::close() {
  reception_.reset();
  const std::scoped_lock lock(mutex_);
  server_ = nullptr;
}

void Door::let_in(comm::Socket socket, const std::string& peer) {
  const std::size_t workers = workers_();
  std::size_t callers = 0;
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(callers_, [](const auto& caller) { return inode_of(caller.first) != caller.second.inode; });
    callers = relay_ ? relay_->size() : callers_.size();
  }
  if (callers >= workers + kMostVisitors)
    return log::warning("refused a connection from {}: {} others know the key but have not joined yet", peer, callers - workers);
  limit_stuck(socket, kAcceptedStuck);
  if (tls_) encrypt(std::move(socket), peer);
  else hand_over(std::move(socket), peer);
}

void Door::encrypt(comm::Socket socket, const std::string& peer) {
  relay_->receive(
      comm::TlsSession::as_server(*tls_), std::move(socket), [this, peer](comm::Socket plain) { hand_over(std::move(plain), peer); },
      [peer](const std::string& why) {
        log::warning("refused a connection from {}: it knows the job's key, but the TLS handshake failed: {}", peer, why);
      });
}

void Door::hand_over(comm::Socket socket, const std::string& peer) {
  const std::scoped_lock lock(mutex_);
  if (server_ == nullptr) return;
  callers_[socket.get()] = {peer, inode_of(socket.get())};
  grpc::AddInsecureChannelFromFd(server_, socket.release());
}

std::string Door::peer_of(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& [descriptor, caller] : callers_)
    if (name == fmt::format("fd:{}", descriptor)) return caller.peer;
  return name;
}

std::shared_ptr<grpc::Channel> connect_through_door(const std::string& address, const Security& security, Nanoseconds answer,
                                                    const comm::Deadline& until, std::string& why) {
  const std::optional<comm::TlsContext> tls = tls_of(security);
  try {
    comm::Socket socket = comm::dial(socket_address(address), until);
    comm::authenticate(socket, security.secret, purpose(tls.has_value()), until, purpose(!tls));
    limit_stuck(socket, stuck_limit(answer));
    if (tls) return encrypted_channel(address, *tls, std::move(socket), answer, until);
    return grpc::CreateCustomInsecureChannelFromFd(address, socket.release(), channel_arguments(answer));
  } catch (const std::system_error& error) {
    why = error.code().message();
  } catch (const comm::SilentError& silent) {
    why = silent.what();
  } catch (const comm::OtherPurposeError&) {
    refuse_mismatch(address, tls.has_value());
  } catch (const comm::StrangerError& stranger) {
    throw ConfigError(fmt::format("the server at {} is {}; give --key-file RUN/servers/key, or set PACELINE_JOB to its content", address,
                                  stranger.what()));
  } catch (const comm::TlsError& error) {
    throw ConfigError(
        fmt::format("the TLS handshake with the server at {} failed: {}; check that each side's ps.certificate was signed by the "
                    "other's ps.authority, and that the server's contains its host name",
                    address, error.what()));
  }
  return nullptr;
}

}  // namespace paceline::ps

#endif
