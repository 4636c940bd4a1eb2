#if PACELINE_WITH_GRPC

#include "paceline/ps/transports/grpc_session.h"

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::ps {

using wire::Verb;

namespace {

DataError wrong_size(std::string_view what, std::int64_t expected, std::int64_t got) {
  return {"a worker's message", fmt::format("expected {} bytes of {}, got {}", expected, what, got)};
}

}  // namespace

Session::Session(grpc::ServerContext& context, Stream& stream, int worker, std::uint64_t token)
    : context_(context), stream_(stream), peer_(context.peer()), worker_(worker), token_(token) {}

void Session::serve(Host& host, const Layout& layout, const GrpcServer::Options& options) {
  length_ = host.length();
  staging_ = allocate_host(length_), gradient_ = allocate_host(length_);
  replica_ = host.with([](Server& server) { return server.rule().needs().replica; });
  if (!options.compression.name.empty()) {
    decoder_.emplace(options.compression, parts_of(layout).slice(options.begin, options.end));
    code_.resize(static_cast<std::size_t>(decoder_->bound()));
  }
  const House house{host, layout, options};
  for (grpc::ByteBuffer request; stream_.Read(&request);) answer(house, bytes_of(request));
}

void Session::answer(const House& house, const std::string& bytes) {
  const wire::Head head = wire::unpack_head(bytes);
  loan_.wait();  // whoever asks again has its last answer; the buffers are free
  switch (head.verb) {
    case Verb::pull: return pull(house, wire::unpack<wire::PullRequest>(bytes));
    case Verb::report: return report(house, wire::unpack<Report>(bytes), head.payload);
    case Verb::push: return push(house, wire::unpack<wire::PushRequest>(bytes), head.payload);
    case Verb::next: return next(house);
    case Verb::done: return done(house, wire::unpack<wire::Done>(bytes));
    case Verb::in_vain: return reply([&] { send_reply(Verb::in_vain, wire::Answer{house.host.in_vain(worker_)}); });
    default: throw DataError("a worker's message", fmt::format("nobody asks for '{}' here", wire::name(head.verb)));
  }
}

void Session::pull(const House& house, const wire::PullRequest& request) {
  reply([&] {
    house.host.pull(worker_, staging_.get(), request.rate);
    send_reply(Verb::pull, wire::Nothing{}, std::as_bytes(std::span(staging_.get(), static_cast<std::size_t>(length_))));
  });
}

void Session::push(const House& house, const wire::PushRequest& request, std::int64_t bytes) {
  const auto gradient = std::span(gradient_.get(), static_cast<std::size_t>(length_));
  if (request.coded && (!decoder_ || bytes > decoder_->bound())) throw wrong_size("a code", decoder_ ? decoder_->bound() : 0, bytes);
  if (!request.coded && bytes != static_cast<std::int64_t>(gradient.size_bytes()))
    throw wrong_size("a gradient", std::ssize(gradient) * 4, bytes);
  const auto place = request.coded ? std::span(code_).first(static_cast<std::size_t>(bytes)) : std::as_writable_bytes(gradient);
  receive_payload(stream_, place);
  reply([&] {
    if (request.coded) decoder_->decode(place, gradient.data());
    const Verdict verdict = house.host.push(worker_, gradient.data(), request.push);
    const bool changed = replica_ && verdict.fate != Verdict::Fate::dropped;
    send_reply(Verb::push, wire::Pushed{static_cast<std::int64_t>(verdict.fate), verdict.gathered},
               changed ? std::as_bytes(gradient) : std::span<const std::byte>{});
  });
}

void Session::report(const House& house, const Report& report, std::int64_t bytes) {
  std::vector<float> statistics(static_cast<std::size_t>(house.layout.statistics));
  const auto expected = static_cast<std::int64_t>(statistics.size() * sizeof(float));
  if (bytes != 0 && bytes != expected) throw wrong_size("statistics", expected, bytes);
  if (bytes > 0) receive_payload(stream_, std::as_writable_bytes(std::span(statistics)));
  reply([&] { send_reply(Verb::report, house.host.report(worker_, report, bytes > 0 ? statistics.data() : nullptr)); });
}

void Session::next(const House& house) {
  reply([&] {
    if (!house.options.next_task) throw ConfigError("this server hands out no work; ask the first one");
    bool finished = false;
    wire::Next answer;
    if (const auto task = house.options.next_task(worker_, finished)) {
      answer.kind = wire::Next::task, answer.what = *task;
      task_ = task;
    } else {
      answer.kind = finished ? wire::Next::finished : wire::Next::later;
    }
    send_reply(Verb::next, answer);
  });
}

void Session::done(const House& house, const wire::Done& what) {
  reply([&] {
    if (task_ == what.task) {  // else it was handed back when this worker was gone, and somebody else has it
      task_.reset();
      if (house.options.task_done) house.options.task_done(worker_, what.task, what.loss_sum, what.right, what.targets);
    }
    send_reply(Verb::done, wire::Nothing{});
  });
}

template <class Act>
void Session::reply(const Act& act) {
  try {
    act();
  } catch (const Broken&) {
    throw;
  } catch (const std::exception& error) {
    const auto failure = wire::pack_failure(error);
    send(stream_, failure.head, std::as_bytes(std::span(failure.payload)), loan_);
    loan_.wait();
  }
}

template <class Body>
void Session::send_reply(Verb verb, const Body& body, std::span<const std::byte> payload) {
  send(stream_, wire::pack(verb, body, static_cast<std::int64_t>(payload.size())), payload, loan_);
}

}  // namespace paceline::ps

#endif
