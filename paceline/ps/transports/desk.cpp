#include "paceline/ps/transports/desk.h"

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/ps/ledger.h"

namespace paceline::ps {
namespace {

using wire::Verb;

constexpr const char* kMessage = "a worker's message";

void expect_number(std::int64_t number) {
  if (number < 0 || number > kMostMinibatches)
    throw DataError(kMessage, fmt::format("it names minibatch {}, which does not exist", number));
}

}  // namespace

void check_alike(const wire::Join& join, std::string_view text, const ArenaLayout& layout, const ServiceOptions& options) {
  const std::int64_t size = std::ssize(text);
  if (join.layout < 0 || join.compression < 0 || join.layout > size || join.compression > size - join.layout)
    throw DataError(kMessage, "it joined without a layout");
  const std::string_view theirs = text.substr(0, static_cast<std::size_t>(join.layout));
  const std::string_view coded = text.substr(theirs.size(), static_cast<std::size_t>(join.compression));
  const std::string terms(text.substr(theirs.size() + coded.size()));
  if (const std::string what = difference(parse_layout(theirs), layout); !what.empty())
    throw ConfigError(fmt::format("the worker's model (here) differs from the server's (there): {}; give both the same recipe", what));
  if (coded != options.compression.describe())
    throw ConfigError(fmt::format("the worker compresses its pushes with '{}', but the server expects '{}'; give both the same recipe",
                                  coded, options.compression.describe()));
  if (const std::string what = difference(terms, options.terms); !what.empty())
    throw ConfigError(fmt::format("the worker's recipe (here) differs from the run's (there): {}; give both the same", what));
}

std::int64_t longest_introduction(const ArenaLayout& layout, const ServiceOptions& options) {
  constexpr std::int64_t kRoom = 1 << 16;
  return 2 * std::ssize(serialise(layout)) + std::ssize(options.compression.describe()) + std::ssize(options.terms) + kRoom;
}

wire::Joined welcome(int worker, ConcurrentServer& concurrent, const ServiceOptions& options) {
  return {.worker = worker,
          .begin = options.begin,
          .end = options.end,
          .wait = concurrent.limits().wait.count(),
          .silence = concurrent.limits().silence.count(),
          .version = concurrent.with([](Server& server) { return server.version(); }),
          .durable = options.durable,
          .answers = concurrent.with([](Server& server) { return server.rule().needs().replica; }),
          .resumed = options.resumed};
}

void check_service(ConcurrentServer& concurrent, const ServiceOptions& options) {
  ensure(options.begin >= 0 && options.end - options.begin == concurrent.length(), "a server's range is as long as its memory");
  const bool replica = concurrent.with([](Server& server) { return server.rule().needs().replica; });
  if (concurrent.place().cuda)
    throw ConfigError("servers for workers of other processes keep the parameters in host memory; choose device cpu for them");
  options.compression.check(replica);
}

Desk::Desk(ConcurrentServer& concurrent, const ArenaLayout& layout, const ServiceOptions& options, int worker)
    : concurrent_(concurrent),
      options_(options),
      worker_(worker),
      replica_(concurrent.with([](Server& server) { return server.rule().needs().replica; })),
      length_(static_cast<std::size_t>(concurrent.length())),
      staging_(allocate_host(concurrent.length())),
      longest_order_(wire::longest_order(layout.length)) {
  if (worker == kObserver) return;  // it pushes nothing
  gradient_ = allocate_host(concurrent.length());
  statistics_.resize(static_cast<std::size_t>(layout.statistics));
  if (options.compression.name.empty()) return;
  decoder_.emplace(options.compression, parts_of(layout).slice(options.begin, options.end));
  code_.resize(static_cast<std::size_t>(decoder_->bound()));
}

std::span<std::byte> Desk::room_for(std::string_view bytes) {
  const wire::Head head = wire::unpack_head(bytes);
  const auto size = static_cast<std::size_t>(head.payload);
  const auto exactly = [&](std::span<std::byte> room, const char* what) {
    if (room.size() != size) throw DataError(kMessage, fmt::format("expected {} bytes of {}, got {}", room.size(), what, size));
    return room;
  };
  if (worker_ == kObserver && head.verb != Verb::pull && head.verb != Verb::order && head.verb != Verb::leave)
    throw DataError(kMessage, fmt::format("an observer must not send '{}'", wire::name(head.verb)));
  switch (head.verb) {
    case Verb::push:
      expect_number(wire::unpack<wire::PushRequest>(bytes).push.number);
      expect_number(wire::unpack<wire::PushRequest>(bytes).push.complete_below);
      switch (wire::unpack<wire::PushRequest>(bytes).kind) {
        case wire::PushRequest::plain: return exactly(std::as_writable_bytes(std::span(gradient_.get(), length_)), "a gradient");
        case wire::PushRequest::not_finite: return exactly({}, "it pushed a non-finite gradient");
        case wire::PushRequest::coded: break;
        default: throw DataError(kMessage, "it pushed an unknown kind of payload");
      }
      if (!decoder_) throw DataError(kMessage, "it pushed a compressed gradient, but this server expects none");
      if (size > code_.size())
        throw DataError(kMessage, fmt::format("expected a compressed gradient of at most {} bytes, got {}", code_.size(), size));
      return std::span(code_).first(size);
    case Verb::report:
      expect_number(wire::unpack<Report>(bytes).number);
      return exactly(size > 0 ? std::as_writable_bytes(std::span(statistics_)) : std::span<std::byte>{}, "statistics");
    case Verb::pull:
      expect_number(wire::unpack<wire::PullRequest>(bytes).number);
      if (!wire::unpack<wire::PullRequest>(bytes).wanted && worker_ == kObserver)
        throw DataError(kMessage, "an observer must ask for parameters");
      break;
    case Verb::done: wire::expect_body(bytes, sizeof(wire::Done)); break;
    case Verb::next: wire::expect_body(bytes, sizeof(wire::NextRequest)); break;
    case Verb::order: {
      const bool brings = worker_ == kObserver && wire::unpack<wire::OrderRequest>(bytes).bytes == 0;
      wire::expect_body(bytes, sizeof(wire::OrderRequest));
      return brings ? order_room(head.payload) : exactly({}, "nothing");
    }
    case Verb::answer:
      wire::expect_body(bytes, 0);
      if (!options_.answered) throw DataError(kMessage, fmt::format("{} bytes of an answer that nobody has asked for", head.payload));
      return order_room(head.payload);
    case Verb::cancelled:
    case Verb::leave: wire::expect_body(bytes, 0); break;
    default: throw DataError(kMessage, fmt::format("'{}' is not a request", wire::name(head.verb)));
  }
  return exactly({}, "nothing");
}

std::span<std::byte> Desk::order_room(std::int64_t bytes) {
  if (bytes > longest_order_)
    throw DataError(kMessage, fmt::format("an order or its answer of {} bytes; at most {} were expected", bytes, longest_order_));
  order_.resize(static_cast<std::size_t>(bytes));
  return std::as_writable_bytes(std::span(order_));
}

Desk::Reply Desk::answer(std::string_view bytes) {
  const wire::Head head = wire::unpack_head(bytes);
  try {
    return act(head, bytes);
  } catch (const std::exception& error) {
    return failure(error);
  }
}

Desk::Reply Desk::failure(const std::exception& error) {
  wire::FailureMessage message = wire::pack_failure(error);
  text_ = std::move(message.payload);
  return {std::move(message.head), std::as_bytes(std::span(text_))};
}

Desk::Reply Desk::act(const wire::Head& head, std::string_view bytes) {
  switch (head.verb) {
    case Verb::pull: return pull(wire::unpack<wire::PullRequest>(bytes));
    case Verb::report:
      return reply(Verb::report, concurrent_.report(worker_, wire::unpack<Report>(bytes), head.payload > 0 ? statistics_.data() : nullptr));
    case Verb::push: return push(wire::unpack<wire::PushRequest>(bytes), head.payload);
    case Verb::cancelled: return reply(Verb::cancelled, wire::Answer{concurrent_.cancelled(worker_)});
    case Verb::next: return next(wire::unpack<wire::NextRequest>(bytes));
    case Verb::done: return done(wire::unpack<wire::Done>(bytes));
    case Verb::order: return order(wire::unpack<wire::OrderRequest>(bytes), head.payload);
    case Verb::answer: return answered();
    default: return reply(head.verb, wire::Nothing{});  // leave; no other verb has a payload
  }
}

Desk::Reply Desk::pull(const wire::PullRequest& request) {
  const std::span<float> parameters(request.wanted ? staging_.get() : nullptr, request.wanted ? length_ : 0);
  const std::int64_t version = concurrent_.pull(worker_, parameters.data(), request.rate, request.number);
  return reply(Verb::pull, wire::Pulled{version}, std::as_bytes(parameters));
}

Desk::Reply Desk::push(const wire::PushRequest& request, std::int64_t bytes) {
  if (request.kind == wire::PushRequest::not_finite) {
    concurrent_.refuse(worker_, request.push);
    return reply(Verb::push, wire::Pushed{static_cast<std::int64_t>(Admission::Fate::dropped), 0});
  }
  const auto gradient = std::span(gradient_.get(), length_);
  if (request.kind == wire::PushRequest::coded) decoder_->decode(std::span(code_).first(static_cast<std::size_t>(bytes)), gradient.data());
  const Admission admission = concurrent_.push(worker_, gradient.data(), request.push);
  const bool changed = replica_ && admission.fate != Admission::Fate::dropped;
  return reply(Verb::push, wire::Pushed{static_cast<std::int64_t>(admission.fate), admission.gathered},
               changed ? std::as_bytes(gradient) : std::span<const std::byte>{});
}

Desk::Reply Desk::next(const wire::NextRequest& request) {
  if (!options_.next_task) throw ConfigError("this server hands out no work; ask the first one");
  if (options_.order && !options_.order(worker_).empty()) return reply(Verb::next, wire::Next{.kind = wire::Next::order, .what = {}});
  bool finished = false;
  const auto task = options_.next_task(worker_, request.visits != 0, finished);
  if (task) task_ = task;
  return reply(Verb::next, wire::Next{.kind = task       ? wire::Next::task
                                              : finished ? wire::Next::finished
                                                         : wire::Next::later,
                                      .what = task.value_or(Task{})});
}

Desk::Reply Desk::order(const wire::OrderRequest& request, std::int64_t bytes) {
  if (worker_ != kObserver && request.bytes == 0) order_ = options_.order ? options_.order(worker_) : "";
  if (worker_ == kObserver && bytes > 0) order_ = options_.carry_out ? options_.carry_out(order_) : "";
  const bool known = request.bytes == std::ssize(order_);  // else this is the first request, or the server that answered it is gone
  return reply(Verb::order, wire::OrderSize{std::ssize(order_)}, std::as_bytes(std::span(order_)).first(known ? order_.size() : 0));
}

Desk::Reply Desk::answered() {
  options_.answered(worker_, order_);
  return reply(Verb::answer, wire::Nothing{});
}

Desk::Reply Desk::done(const wire::Done& what) {
  if (task_ == what.task) task_.reset();
  // Also for a task that was reassigned when this worker reconnected: the assigner of tasks drops duplicates.
  if (options_.task_done) options_.task_done(worker_, what.task, what.loss_sum, what.right, what.targets);
  return reply(Verb::done, wire::Nothing{});
}

}  // namespace paceline::ps
