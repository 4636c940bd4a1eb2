#if PACELINE_WITH_GRPC

#include "paceline/ps/transports/grpc_link.h"

#include <fmt/format.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/impl/rpc_method.h>

#include <algorithm>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/ps/transports/grpc_door.h"

namespace paceline::ps {
namespace {

constexpr Nanoseconds kPause = std::chrono::milliseconds(50);    // before retrying a server that accepted the connection but not the worker
constexpr Nanoseconds kBeatLimit = std::chrono::seconds(1);      // for a server to answer a beat
constexpr Nanoseconds kLongestPeriod = std::chrono::seconds(5);  // of beats

std::chrono::system_clock::time_point in(Nanoseconds time) {
  return std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(time);
}

}  // namespace

Link::Link(int index, std::string address, const Identity& identity) : index_(index), address_(std::move(address)), identity_(identity) {
  check_exposure(address_, identity_.options.security);
  hear_grpc();
}

Link::~Link() {
  try {
    drop();
  } catch (const DataError& error) {
    log::warning("{}", error.what());
  }
}

std::string Link::name() const { return fmt::format("server {} at {}", index_, address_); }

const wire::Joined& Link::connect() {
  join_until(clock_.now() + identity_.options.patience);
  return joined_;
}

std::string Link::ask(const Question& question) {
  for (Nanoseconds patience{0};;) {
    try {
      return ask_once(question);
    } catch (const Broken&) {
      const std::string why = drop();
      if (patience == Nanoseconds(0)) patience = clock_.now() + identity_.options.patience;
      else if (clock_.now() > patience) give_up(why);
      log::warning("{} cannot be reached ({}); waiting for it", name(), why);
    }
    join_until(patience);
    if (joined_.version < seen_)
      log::warning("{} is back with version {}, but had {}: the updates in between are lost; {} continues", name(), joined_.version, seen_,
                   who(identity_.worker));
    else log::info("{} is back; {} continues", name(), who(identity_.worker));
    seen_ = joined_.version;
    if (question.once) return {};
  }
}

std::string Link::ask_once(const Question& question) {
  if (!stream_) throw Broken("not connected");
  // In any case the memory belongs to the caller again when this returns. A broken stream may hold it until its connection is closed.
  struct Asking {
    Link& link;
    bool broken = true;
    ~Asking() {
      link.overdue_ = Nanoseconds::max();
      if (!broken) link.loan_.wait();
    }
  } asking{*this};
  overdue_ = clock_.now() + identity_.options.deadline + Nanoseconds(joined_.wait);
  send(*stream_, question.head, question.payload, loan_);
  std::string answer = receive_head(*stream_);
  asking.broken = false;
  const wire::Head told = question.check(answer, name());
  if (told.verb == wire::Verb::error) wire::raise(answer, receive_text(*stream_, told.payload, wire::kMostFailure));
  if (told.payload != 0) receive_payload(*stream_, question.into);
  if (told.verb == wire::Verb::pull) seen_ = wire::unpack<wire::Pulled>(answer).version;
  return answer;
}

void Link::join_until(Nanoseconds moment) {
  const Introduction introduction(identity_.worker, identity_.layout, identity_.options, identity_.token);
  for (;;) {
    try {
      open(moment);
      overdue_ = clock_.now() + identity_.options.deadline;
      const auto now = wire::unpack<wire::Joined>(ask_once(introduction.question()));
      if (joined_.end > 0 && (now.begin != joined_.begin || now.end != joined_.end))
        throw ConfigError(fmt::format("{} is back with another range of the model; start all workers again", name()));
      const std::scoped_lock lock(mutex_);
      joined_ = now;
      return;
    } catch (const Broken& broken) {
      const std::string why = stream_ ? drop() : broken.what();
      if (clock_.now() + kPause > moment) give_up(why);
      std::this_thread::sleep_for(kPause);
    }
  }
}

void Link::open(Nanoseconds moment) {
  const Security& security = identity_.options.security;
  std::string why;
  const auto channel =
      connect_through_door(address_, security, identity_.options.deadline, comm::Deadline(std::max(moment - clock_.now(), kPause)), why);
  if (!channel) throw Broken(why);
  const grpc::internal::RpcMethod session(kSession, grpc::internal::RpcMethod::BIDI_STREAMING, channel);
  const std::scoped_lock lock(mutex_);
  channel_ = channel;
  context_ = std::make_unique<grpc::ClientContext>();
  stream_.reset(
      grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(channel_.get(), session, context_.get()));
}

std::string Link::drop() {
  grpc::Status status(grpc::StatusCode::UNAVAILABLE, "no connection");
  if (stream_) {
    context_->TryCancel();
    status = stream_->Finish();
  }
  release();
  loan_.wait();
  if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) throw DataError(name(), status.error_message());
  return status.error_message().empty() ? "its stream ended" : status.error_message();
}

void Link::release() {
  const std::scoped_lock lock(mutex_);
  stream_.reset(), context_.reset(), channel_.reset();  // closing the connection drops whatever it still had to send
}

void Link::give_up(const std::string& why) const {
  throw PeerError(
      index_, "join", 0,
      fmt::format("{} could not be reached for {:.1f} s ({}); check that it runs, and that both sides have the same TLS settings", name(),
                  seconds(identity_.options.patience), why));
}

void Link::tend() {
  std::shared_ptr<grpc::Channel> channel;
  std::int64_t worker = -1;
  {
    const std::scoped_lock lock(mutex_);
    if (context_ && clock_.now() > overdue_.load()) context_->TryCancel();
    if (!channel_ || joined_.end == 0 || clock_.now() < next_beat_) return;
    next_beat_ = clock_.now() + std::min(Nanoseconds(joined_.silence) / 4, kLongestPeriod);
    channel = channel_;
    worker = joined_.worker;
  }
  grpc::ClientContext context;
  context.set_deadline(in(kBeatLimit));
  grpc::ByteBuffer answer;
  const grpc::internal::RpcMethod beat(kBeat, grpc::internal::RpcMethod::NORMAL_RPC, channel);
  const auto bytes = buffer_of(wire::pack(wire::Verb::beat, wire::Beat{identity_.token, worker}));
  grpc::internal::BlockingUnaryCall(channel.get(), beat, &context, bytes, &answer);  // a failure shows with the next request
}

void Link::close(Nanoseconds within) {
  if (!stream_) return;
  overdue_ = clock_.now() + within;
  stream_->WritesDone();
  stream_->Finish();
  release();
}

}  // namespace paceline::ps

#endif
