#if PACELINE_WITH_GRPC

#include "paceline/ps/transports/grpc_door.h"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_method.h>
#include <grpcpp/server_posix.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "paceline/base/error.h"
#include "paceline/base/log.h"

namespace paceline::ps {
namespace {

using namespace std::chrono_literals;
namespace handshake = comm::handshake;

constexpr Nanoseconds kAcceptedStuck = 10s;  // a connection that does not take what the server writes
constexpr std::size_t kMostVisitors = 64;    // connections beside those of the workers that have joined
constexpr Nanoseconds kPlainLook = 700ms;    // at a server that is silent, or does not shake hands: has it TLS and we have not?

/// 0: there is no such descriptor.
ino_t inode_of(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 ? status.st_ino : 0;
}

void write_message(Writer& stream, const std::string& bytes) {
  if (!stream.Write(buffer_of(bytes), grpc::WriteOptions())) throw Broken("the stream broke while it was written to");
}

/// Another word than "Paceline" makes a TLS server hang up at once, whereas one that is stopped or busy does not answer.
bool hangs_up_on_plain_text(const comm::SocketAddress& address) {
  try {
    const comm::Deadline until(kPlainLook);
    const comm::Socket socket = comm::dial(address, until);
    comm::send_all(socket, std::string(handshake::kGreetingBytes, 'x'), until);
    comm::receive_exactly(socket, 1, until);
    return true;  // an alert
  } catch (const std::system_error& error) {
    return error.code() == std::errc::connection_reset;
  }
}

/// What a server does with somebody who connects and says nothing.
enum class Manner { absent, greets, waits };
Manner manner_of(const comm::SocketAddress& address) {
  try {
    const comm::Deadline until(kPlainLook);
    const comm::Socket socket = comm::dial(address, until);
    return comm::receive_exactly(socket, handshake::kMagic.size(), until).starts_with("PACELINE") ? Manner::greets : Manner::absent;
  } catch (const std::system_error& error) {
    return error.code() == std::errc::timed_out ? Manner::waits : Manner::absent;
  }
}

std::shared_ptr<grpc::Channel> connect_plain(const std::string& address, const Security& security, Nanoseconds answer,
                                             const comm::Deadline& until, std::string& why) {
  const comm::SocketAddress place = socket_address(address);
  try {
    comm::Socket socket = comm::dial(place, until);
    comm::authenticate(socket, security.secret, comm::kForServers, until);
    limit_stuck(socket, stuck_limit(answer));
    return grpc::CreateCustomInsecureChannelFromFd(address, socket.release(), channel_arguments(answer));
  } catch (const std::system_error& error) {
    why = error.code().message();
  } catch (const comm::SilentError& silent) {
    why = silent.what();
    if (hangs_up_on_plain_text(place))
      throw ConfigError(fmt::format(
          "the server at {} uses TLS (or is another program), and this worker does not; give it ps.certificate, ps.key and ps.authority",
          address));
  } catch (const comm::StrangerError& stranger) {
    throw ConfigError(fmt::format("the server at {} is {}; give --key-file RUN/servers/key, or set PACELINE_JOB to what is in it", address,
                                  stranger.what()));
  }
  return nullptr;
}

/// What gRPC says of a connection that does not come about.
std::string complaint_about(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
  const grpc::internal::RpcMethod beat(kBeat, grpc::internal::RpcMethod::NORMAL_RPC, channel);
  grpc::ByteBuffer answer;
  const grpc::ByteBuffer question = buffer_of("");
  return grpc::internal::BlockingUnaryCall(channel.get(), beat, &context, question, &answer).error_message();
}

std::shared_ptr<grpc::Channel> connect_tls(const std::string& address, const Security& security, Nanoseconds answer,
                                           const comm::Deadline& until, std::string& why) {
  auto channel = grpc::CreateCustomChannel(address, channel_credentials(security), channel_arguments(answer));
  if (channel->WaitForConnected(std::chrono::system_clock::now() +
                                std::chrono::duration_cast<std::chrono::system_clock::duration>(until.or_sooner(1s).left())))
    return channel;
  why = complaint_about(channel);
  const Manner manner = manner_of(socket_address(address));
  if (manner == Manner::greets)
    throw ConfigError(fmt::format(
        "the server at {} does not use TLS, and this worker does; give both sides certificates, or neither (ps.certificate, ps.key, "
        "ps.authority)",
        address));
  // Since TLS 1.3 a server that does not like the client's certificate closes a connection which the client thinks is open.
  const bool refused = why.find("handshake failed") != std::string::npos || why.find("Socket closed") != std::string::npos;
  if (refused && manner == Manner::waits)
    throw ConfigError(fmt::format(
        "the TLS handshake with the server at {} failed; see that each side's ps.certificate was signed by the other's ps.authority ({})",
        address, why));
  return nullptr;
}

}  // namespace

Door::Door(const std::string& address, const Security& security, grpc::ServerBuilder& builder)
    : address_(address), security_(security), tls_(uses_tls(security)) {
  check_exposure(address, security);
  if (tls_) builder.AddListeningPort(address, server_credentials(security), &port_);
}

void Door::open(grpc::Server& server, std::function<std::size_t()> workers) {
  if (tls_) return;
  try {
    listener_ = comm::listen_at(socket_address(address_));
    port_ = comm::port_of(listener_);
  } catch (const std::system_error& error) {
    throw ConfigError(fmt::format("cannot listen at {}: {}; another program may have the port, or the address is not this host's", address_,
                                  error.code().message()));
  }
  reception_.emplace(std::move(listener_), security_.secret, comm::kForServers,
                     [this, &server, workers = std::move(workers)](comm::Socket socket, const std::string& peer) {
                       let_in(server, std::move(socket), peer, workers());
                     });
}

void Door::let_in(grpc::Server& server, comm::Socket socket, const std::string& peer, std::size_t workers) {
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(callers_, [](const auto& caller) { return inode_of(caller.first) != caller.second.inode; });
    if (callers_.size() >= workers + kMostVisitors) {
      log::warning("refused a connection from {}: {} others know the key and have not joined", peer, callers_.size() - workers);
      return;
    }
    callers_[socket.get()] = {peer, inode_of(socket.get())};
  }
  limit_stuck(socket, kAcceptedStuck);
  grpc::AddInsecureChannelFromFd(&server, socket.release());
}

std::string Door::peer_of(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& [descriptor, caller] : callers_)
    if (name == fmt::format("fd:{}", descriptor)) return caller.peer;
  return name;
}

void Door::challenge(Writer& out, Reader& in, const std::string& peer) const {
  if (!tls_) return;
  const handshake::Challenge challenge(security_.secret, comm::kForServers);
  write_message(out, challenge.greeting());
  const std::optional<std::string> proof = challenge.answer(receive_head(in));
  write_message(out, proof.value_or(handshake::kRefusal));
  if (proof) return;
  log::warning("refused a stream from {}: it does not know the job's key", peer);
  throw Broken("a stranger");
}

std::shared_ptr<grpc::Channel> connect_through_door(const std::string& address, const Security& security, Nanoseconds answer,
                                                    const comm::Deadline& until, std::string& why) {
  return (uses_tls(security) ? connect_tls : connect_plain)(address, security, answer, until, why);
}

void answer_challenge(Writer& out, Reader& in, const Security& security) {
  if (!uses_tls(security)) return;
  try {
    const handshake::Response response(security.secret, comm::kForServers, receive_head(in));
    write_message(out, response.bytes());
    response.check(receive_head(in));
  } catch (const comm::StrangerError& stranger) {
    throw ConfigError(fmt::format("the server is {}", stranger.what()));
  }
}

}  // namespace paceline::ps

#endif
