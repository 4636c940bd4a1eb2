// The server's side: which workers are present, which were silent for too long, and the gRPC service around them.
//
// Each stream has a thread of gRPC's, in which pulls wait for other workers. A worker that leaves, whether on its own, because its stream
// broke or because it was forgotten, leaves in one place, the end of its stream's thread (visit). The keeper only cuts streams.
#if PACELINE_WITH_GRPC

#include <fmt/format.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/support/method_handler.h>

#include <algorithm>
#include <map>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/ps/transports/grpc_door.h"
#include "paceline/ps/transports/grpc_session.h"

namespace paceline::ps {
namespace {

constexpr std::int64_t kMostWorkers = 1 << 14;
constexpr Nanoseconds kLook = std::chrono::milliseconds(100);  // how often the keeper checks cut streams
constexpr int kMostGuests = 4;                                 // streams that have not joined, 4 MiB each; others must retry
constexpr int kSpareThreads = kMostGuests + 8;  // in addition to those of the workers: guests, beats, threads that wait for calls
constexpr Nanoseconds kHelloTime = std::chrono::seconds(2);  // for a stream to join, and a beat to arrive
constexpr int kMostStreams = 8;                              // per connection; a worker has one, and its beats
constexpr int kIdleMs = 5'000;                               // for a connection without a call; a worker's has its stream

}  // namespace

class GrpcServer::Impl final : public grpc::Service {
 public:
  Impl(std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout, const ServiceOptions& options);
  ~Impl() override;

  int port() const { return port_; }
  const std::string& address() const { return options_.address; }
  std::vector<int> workers() const;

 private:
  using Bytes = grpc::ByteBuffer;

  /// A call that must end soon: a stream that has not joined yet, or a beat.
  class Guest {
   public:
    enum class Purpose { join, beat };
    Guest(Impl& server, grpc::ServerContext& context, Purpose purpose);  // throws Crowded if too many are there
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
  grpc::Status beat(grpc::ServerContext& context, Session::Stream& stream);
  bool has_joined(const grpc::ServerContext& context) const;
  wire::Join read_join(grpc::ServerContext& context, Session::Stream& stream);
  std::unique_ptr<Session> enter(grpc::ServerContext& context, Session::Stream& stream, const wire::Join& join);
  int number_for(const wire::Join& join, std::unique_lock<std::mutex>& lock);
  void leave(const Session& session);
  void allow_threads();
  void keep(const std::stop_token& stop);

  std::shared_ptr<ConcurrentServer> concurrent_;
  ArenaLayout layout_;
  ServiceOptions options_;
  int port_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<int, Session*> sessions_;  // by worker
  struct Visit {
    Guest::Purpose purpose;
    comm::Deadline until;
  };
  std::map<grpc::ServerContext*, Visit> guests_;
  bool closing_ = false;
  grpc::ResourceQuota quota_;  // of threads
  std::optional<Door> door_;
  std::unique_ptr<grpc::Server> server_;
  std::jthread keeper_;
};

GrpcServer::Impl::Impl(std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout, const ServiceOptions& options)
    : concurrent_(std::move(concurrent)), layout_(layout), options_(options) {
  if (options_.end < 0) options_.end = layout_.length;
  check_service(*concurrent_, options_);
  hear_grpc();

  // What the protocol compiler would generate for two methods on bytes.
  using grpc::internal::RpcMethod;
  AddMethod(new grpc::internal::RpcServiceMethod(
      kSession, RpcMethod::BIDI_STREAMING,
      new grpc::internal::BidiStreamingHandler<Impl, Bytes, Bytes>(
          [](Impl* self, grpc::ServerContext* context, Session::Stream* stream) { return self->visit(*context, *stream); }, this)));
  // A beat is one message and its answer. As a stream, we read it after we have seen who sends it; otherwise gRPC would read it first, and
  // buffer 4 MiB of whatever is sent on each of any number of calls.
  AddMethod(new grpc::internal::RpcServiceMethod(
      kBeat, RpcMethod::BIDI_STREAMING,
      new grpc::internal::BidiStreamingHandler<Impl, Bytes, Bytes>(
          [](Impl* self, grpc::ServerContext* context, Session::Stream* stream) { return self->beat(*context, *stream); }, this)));

  grpc::ServerBuilder builder;
  tune(builder);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  allow_threads();
  builder.SetResourceQuota(quota_);
  door_.emplace(options_.address, options_.security);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  ensure(server_ != nullptr, "gRPC starts a server that has no port");
  door_->open(*server_, [this] { return workers().size(); });
  port_ = door_->port();
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
      concurrent_->leave(worker);  // it may be waiting there
    }
    for (const auto& [context, visit] : guests_) context->TryCancel();
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
    stream.SendInitialMetadata();  // a first message that is only buffered would wait for the metadata
    const wire::Join join = read_join(context, stream);
    session = enter(context, stream, join);
    Loan none;
    send(stream, wire::pack(wire::Verb::join, welcome(session->worker(), *concurrent_, options_)), {}, none);
    session->serve(*concurrent_, layout_, options_);
  } catch (const Broken&) {
  } catch (const Crowded& error) {
    status = {grpc::StatusCode::RESOURCE_EXHAUSTED, error.what()};
  } catch (const DataError& error) {  // nothing that follows on the stream can be understood either
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

GrpcServer::Impl::Guest::Guest(Impl& server, grpc::ServerContext& context, Purpose purpose) : server_(server), context_(context) {
  const std::scoped_lock lock(server_.mutex_);
  const auto joins = [](const auto& guest) { return guest.second.purpose == Purpose::join; };
  if (purpose == Purpose::join && std::ranges::count_if(server_.guests_, joins) >= kMostGuests)
    throw Crowded("too many streams that have not joined");
  server_.guests_.emplace(&context_, Visit{purpose, comm::Deadline(kHelloTime)});
}

GrpcServer::Impl::Guest::~Guest() {
  const std::scoped_lock lock(server_.mutex_);
  server_.guests_.erase(&context_);
}

wire::Join GrpcServer::Impl::read_join(grpc::ServerContext& context, Session::Stream& stream) {
  const Guest guest(*this, context, Guest::Purpose::join);
  const std::string head = receive_head(stream);
  const std::int64_t bytes = wire::unpack_head(head).payload;
  const auto join = wire::unpack<wire::Join>(head);
  check_alike(join, receive_text(stream, bytes, longest_introduction(layout_, options_)), layout_, options_);
  if (join.worker < -1 || join.worker >= kMostWorkers)
    throw ConfigError(fmt::format("there is no worker {}; there are at most {}", join.worker, kMostWorkers));
  return join;
}

std::unique_ptr<Session> GrpcServer::Impl::enter(grpc::ServerContext& context, Session::Stream& stream, const wire::Join& join) {
  std::unique_lock lock(mutex_);
  const int worker = number_for(join, lock);
  auto session = std::make_unique<Session>(context, stream, worker, join.token, door_->peer_of(context.peer()));
  sessions_[worker] = session.get();
  allow_threads();
  concurrent_->join(worker);
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
    throw ConfigError(fmt::format("worker {} has already joined, from {}; give every worker its own number", worker, old->second->peer()));
  // The same worker on a new stream: the old one is dead, though that was not reported.
  old->second->cut();
  concurrent_->lose(worker);
  if (!changed_.wait_for(lock, concurrent_->limits().wait, [&] { return !sessions_.contains(worker); }))
    throw Broken("the old stream does not end");
  return worker;
}

void GrpcServer::Impl::leave(const Session& session) {
  const bool broke = session.is_cut() && !session.is_forgotten();
  std::string rest;
  {
    const std::scoped_lock lock(mutex_);
    const bool keeps_place = broke && !closing_ && concurrent_->lose(session.worker());
    if (!keeps_place) concurrent_->leave(session.worker());
    sessions_.erase(session.worker());
    allow_threads();
    const std::size_t others = sessions_.size() - sessions_.count(kObserver);
    rest = keeps_place ? fmt::format("its place in the round is kept for {:.0f} s", seconds(concurrent_->limits().silence))
                       : fmt::format("{} other{} continue{}", others, others == 1 ? "" : "s", others == 1 ? "s" : "");
    if (!closing_ && session.task() && options_.task_lost) options_.task_lost(session.worker(), *session.task());
    if (closing_) return changed_.notify_all();
  }
  changed_.notify_all();
  const std::string name = fmt::format("{} at {}", who(session.worker()), session.peer());
  if (session.is_forgotten())
    log::warning("{} sent nothing for {:.1f} s and counts as lost; {}", name, seconds(concurrent_->limits().silence), rest);
  else if (broke) log::warning("{} is lost: its stream broke; {}", name, rest);
  else log::debug("{} has left; {}", name, rest);
}

/// Each worker has a thread of gRPC's, and all other calls share a few. A call for which there is none gets RESOURCE_EXHAUSTED.
void GrpcServer::Impl::allow_threads() { quota_.SetMaxThreads(static_cast<int>(sessions_.size()) + kSpareThreads); }

/// Whether a worker's stream is on the connection of this call.
bool GrpcServer::Impl::has_joined(const grpc::ServerContext& context) const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(sessions_, [name = context.peer()](const auto& entry) { return entry.second->connection() == name; });
}

grpc::Status GrpcServer::Impl::beat(grpc::ServerContext& context, Session::Stream& stream) {
  const grpc::Status unknown(grpc::StatusCode::NOT_FOUND, "this worker has not joined");
  if (!has_joined(context)) return unknown;
  try {
    const Guest guest(*this, context, Guest::Purpose::beat);
    const auto beat = wire::unpack<wire::Beat>(receive_head(stream));
    {
      const std::scoped_lock lock(mutex_);
      const auto found = sessions_.find(static_cast<int>(beat.worker));
      if (found == sessions_.end() || found->second->token() != beat.token) return unknown;
      concurrent_->heard_of(found->first);
    }
    stream.Write(buffer_of(""));
    return grpc::Status::OK;
  } catch (const Error& error) {
    return {grpc::StatusCode::INVALID_ARGUMENT, error.what()};
  }
}

void GrpcServer::Impl::keep(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    changed_.wait_for(lock, stop, kLook, [] { return false; });
    for (const int worker : concurrent_->forget_silent())
      if (const auto found = sessions_.find(worker); found != sessions_.end()) found->second->forget();
    for (const auto& [worker, session] : sessions_)
      if (session->is_cut()) concurrent_->lose(worker);  // ends its wait, if it waits
    for (const auto& [context, visit] : guests_)
      if (visit.until.passed()) context->TryCancel();
  }
}

GrpcServer::GrpcServer(std::shared_ptr<ConcurrentServer> concurrent, const ArenaLayout& layout, const ServiceOptions& options)
    : impl_(std::make_unique<Impl>(std::move(concurrent), layout, options)) {}
GrpcServer::~GrpcServer() = default;
int GrpcServer::port() const { return impl_->port(); }
std::string GrpcServer::address() const { return impl_->address(); }
std::vector<int> GrpcServer::workers() const { return impl_->workers(); }

}  // namespace paceline::ps

#endif
