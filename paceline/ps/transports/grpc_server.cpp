// The server's side: who is here, who was silent for too long, and the gRPC service around them.
//
// A stream is served by a thread of its own, which gRPC gives it: pulls wait there for other workers. Whoever leaves, by its own will, by a
// broken stream or forgotten, leaves at one place, the end of its stream's thread (visit). The keeper only cuts streams.
#if PACELINE_WITH_GRPC

#include <fmt/format.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>
#include <grpcpp/support/method_handler.h>

#include <map>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/ps/transports/grpc_door.h"
#include "paceline/ps/transports/grpc_session.h"

namespace paceline::ps {
namespace {

constexpr std::int64_t kMostWorkers = 1 << 14;
constexpr Nanoseconds kLook = std::chrono::milliseconds(100);  // how often the keeper looks after cut streams
constexpr std::size_t kMostGuests = 12;                        // streams that have not joined; whoever comes then tries again
constexpr Nanoseconds kHelloTime = std::chrono::seconds(2);    // in which a stream joins
constexpr int kMostStreams = 8;                                // of one connection; a worker has one, and its beats
constexpr int kTlsHandshakeMs = 5'000;

}  // namespace

class GrpcServer::Impl final : public grpc::Service {
 public:
  Impl(std::shared_ptr<Host> host, const Layout& layout, const ServiceOptions& options);
  ~Impl() override;

  int port() const { return port_; }
  const std::string& address() const { return options_.address; }
  std::vector<int> workers() const;

 private:
  using Bytes = grpc::ByteBuffer;

  /// A stream that has not joined yet.
  class Guest {
   public:
    Guest(Impl& server, grpc::ServerContext& context);  // Crowded
    ~Guest();

   private:
    Impl& server_;
    grpc::ServerContext& context_;
  };
  class Crowded : public Error {
   public:
    using Error::Error;
  };

  grpc::Status visit(grpc::ServerContext& context, Session::Stream& stream);
  grpc::Status beat(const Bytes& request);
  wire::Join read_join(grpc::ServerContext& context, Session::Stream& stream);
  std::unique_ptr<Session> enter(grpc::ServerContext& context, Session::Stream& stream, const wire::Join& join);
  int number_for(const wire::Join& join, std::unique_lock<std::mutex>& lock);
  void leave(const Session& session);
  void keep(const std::stop_token& stop);

  std::shared_ptr<Host> host_;
  Layout layout_;
  ServiceOptions options_;
  int port_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<int, Session*> sessions_;  // by worker
  std::map<grpc::ServerContext*, comm::Deadline> guests_;
  bool closing_ = false;
  std::optional<Door> door_;
  std::unique_ptr<grpc::Server> server_;
  std::jthread keeper_;
};

GrpcServer::Impl::Impl(std::shared_ptr<Host> host, const Layout& layout, const ServiceOptions& options)
    : host_(std::move(host)), layout_(layout), options_(options) {
  if (options_.end < 0) options_.end = layout_.length;
  check_service(*host_, options_);
  hear_grpc();

  // What the protocol compiler would write for two methods of bytes.
  using grpc::internal::RpcMethod;
  AddMethod(new grpc::internal::RpcServiceMethod(
      kSession, RpcMethod::BIDI_STREAMING,
      new grpc::internal::BidiStreamingHandler<Impl, Bytes, Bytes>(
          [](Impl* self, grpc::ServerContext* context, Session::Stream* stream) { return self->visit(*context, *stream); }, this)));
  AddMethod(new grpc::internal::RpcServiceMethod(kBeat, RpcMethod::NORMAL_RPC,
                                                 new grpc::internal::RpcMethodHandler<Impl, Bytes, Bytes>(
                                                     [](Impl* self, grpc::ServerContext*, const Bytes* request, Bytes* answer) {
                                                       *answer = buffer_of("");
                                                       return self->beat(*request);
                                                     },
                                                     this)));

  grpc::ServerBuilder builder;
  tune(builder);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kTlsHandshakeMs);
  door_.emplace(options_.address, options_.security, builder);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_) door_->open(*server_);
  port_ = door_->port();
  if (!server_ || port_ == 0)
    throw ConfigError(
        fmt::format("cannot listen at {}; another program may have the port, or the address is not this host's", options_.address));
  options_.address = fmt::format("{}:{}", options_.address.substr(0, options_.address.rfind(':')), port_);
  keeper_ = std::jthread([this](const std::stop_token& stop) { keep(stop); });
}

GrpcServer::Impl::~Impl() {
  keeper_ = {};
  door_->close();
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    for (const auto& [worker, session] : sessions_) {
      session->cut();
      host_->leave(worker);  // it may be waiting there
    }
    for (const auto& [context, until] : guests_) context->TryCancel();
  }
  server_->Shutdown(std::chrono::system_clock::now());
}

std::vector<int> GrpcServer::Impl::workers() const {
  const std::scoped_lock lock(mutex_);
  std::vector<int> all;
  for (const auto& [worker, session] : sessions_) all.push_back(worker);
  return all;
}

grpc::Status GrpcServer::Impl::visit(grpc::ServerContext& context, Session::Stream& stream) {
  std::unique_ptr<Session> session;
  grpc::Status status;
  try {
    stream.SendInitialMetadata();  // a first message that is only buffered would wait for it
    const wire::Join join = read_join(context, stream);
    session = enter(context, stream, join);
    Loan none;
    send(stream, wire::pack(wire::Verb::join, welcome(session->worker(), *host_, options_)), {}, none);
    session->serve(*host_, layout_, options_);
  } catch (const Broken&) {
  } catch (const Crowded& error) {
    status = {grpc::StatusCode::RESOURCE_EXHAUSTED, error.what()};
  } catch (const DataError& error) {  // whatever follows on the stream cannot be understood either
    status = {grpc::StatusCode::INVALID_ARGUMENT, error.what()};
  } catch (const std::exception& error) {
    const auto failure = std::make_shared<wire::FailureMessage>(wire::pack_failure(error));
    Loan loan(failure);
    try {
      send(stream, failure->head, std::as_bytes(std::span(failure->payload)), loan);
    } catch (const Broken&) {
    }
  }
  if (session) leave(*session);
  return status;
}

GrpcServer::Impl::Guest::Guest(Impl& server, grpc::ServerContext& context) : server_(server), context_(context) {
  const std::scoped_lock lock(server_.mutex_);
  if (server_.guests_.size() >= kMostGuests) throw Crowded("too many streams that have not joined");
  server_.guests_.emplace(&context_, comm::Deadline(kHelloTime));
}

GrpcServer::Impl::Guest::~Guest() {
  const std::scoped_lock lock(server_.mutex_);
  server_.guests_.erase(&context_);
}

wire::Join GrpcServer::Impl::read_join(grpc::ServerContext& context, Session::Stream& stream) {
  const Guest guest(*this, context);
  door_->challenge(stream, stream, context.peer());
  const std::string head = receive_head(stream);
  const std::int64_t bytes = wire::unpack_head(head).payload;
  const auto join = wire::unpack<wire::Join>(head);
  check_alike(join, receive_text(stream, bytes, longest_introduction(layout_, options_)), layout_, options_);
  if (join.worker < -1 || join.worker >= kMostWorkers)
    throw ConfigError(fmt::format("no worker has the number {}; there are at most {}", join.worker, kMostWorkers));
  return join;
}

std::unique_ptr<Session> GrpcServer::Impl::enter(grpc::ServerContext& context, Session::Stream& stream, const wire::Join& join) {
  std::unique_lock lock(mutex_);
  const int worker = number_for(join, lock);
  auto session = std::make_unique<Session>(context, stream, worker, join.token, door_->peer_of(context.peer()));
  sessions_[worker] = session.get();
  host_->join(worker);
  if (closing_) session->cut();
  return session;
}

int GrpcServer::Impl::number_for(const wire::Join& join, std::unique_lock<std::mutex>& lock) {
  if (join.worker < 0) {
    int free = 0;
    while (sessions_.contains(free)) ++free;
    return free;
  }
  const auto worker = static_cast<int>(join.worker);
  const auto old = sessions_.find(worker);
  if (old == sessions_.end()) return worker;
  if (old->second->token() != join.token)
    throw ConfigError(
        fmt::format("worker {} is here already, from {}; give every worker a number of its own", worker, old->second->peer()));
  // The same worker by a new stream: the old one is dead, though nobody told.
  old->second->cut();
  host_->leave(worker);
  if (!changed_.wait_for(lock, host_->limits().wait, [&] { return !sessions_.contains(worker); }))
    throw Broken("the old stream does not end");
  return worker;
}

void GrpcServer::Impl::leave(const Session& session) {
  std::string rest;
  {
    const std::scoped_lock lock(mutex_);
    host_->leave(session.worker());
    sessions_.erase(session.worker());
    const std::size_t others = sessions_.size() - sessions_.count(kObserver);
    rest = fmt::format("{} go{} on", others, others == 1 ? "es" : "");
    if (!closing_ && session.task() && options_.task_lost) options_.task_lost(session.worker(), *session.task());
    if (closing_) return changed_.notify_all();
  }
  changed_.notify_all();
  const std::string name = fmt::format("{} at {}", who(session.worker()), session.peer());
  if (session.is_forgotten())
    log::warning("{} was not heard of for {:.1f} s and is forgotten; {}", name, seconds(host_->limits().silence), rest);
  else if (session.is_cut()) log::warning("{} is gone: its stream broke; {}", name, rest);
  else log::debug("{} has left; {}", name, rest);
}

grpc::Status GrpcServer::Impl::beat(const Bytes& request) {
  try {
    const auto beat = wire::unpack<wire::Beat>(bytes_of(request));
    const std::scoped_lock lock(mutex_);
    const auto found = sessions_.find(static_cast<int>(beat.worker));
    if (found == sessions_.end() || found->second->token() != beat.token) return {grpc::StatusCode::NOT_FOUND, "this worker is not here"};
    host_->heard_of(found->first);
    return grpc::Status::OK;
  } catch (const Error& error) {
    return {grpc::StatusCode::INVALID_ARGUMENT, error.what()};
  }
}

void GrpcServer::Impl::keep(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    changed_.wait_for(lock, stop, kLook, [] { return false; });
    for (const int worker : host_->forget_silent())
      if (const auto found = sessions_.find(worker); found != sessions_.end()) found->second->forget();
    for (const auto& [worker, session] : sessions_)
      if (session->is_cut()) host_->leave(worker);  // ends its waiting, if it waits
    for (const auto& [context, until] : guests_)
      if (until.passed()) context->TryCancel();
  }
}

GrpcServer::GrpcServer(std::shared_ptr<Host> host, const Layout& layout, const ServiceOptions& options)
    : impl_(std::make_unique<Impl>(std::move(host), layout, options)) {}
GrpcServer::~GrpcServer() = default;
int GrpcServer::port() const { return impl_->port(); }
std::string GrpcServer::address() const { return impl_->address(); }
std::vector<int> GrpcServer::workers() const { return impl_->workers(); }

}  // namespace paceline::ps

#endif
