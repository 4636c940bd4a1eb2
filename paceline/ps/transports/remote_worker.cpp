#include "paceline/ps/transports/remote_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "paceline/base/error.h"

namespace paceline::ps {
namespace {

using wire::Verb;

constexpr Nanoseconds kAskAgain = std::chrono::milliseconds(5);  // for work, if there was none
constexpr int kOrderAttempts = 8;                                // to read a text that changes if its server is restarted

}  // namespace

wire::Head Question::check(std::string_view answer, const std::string& server) const {
  const wire::Head told = wire::unpack_head(answer);
  if (told.verb == Verb::error) {
    wire::expect_text(told.payload, wire::kMostFailure);
    return told;
  }
  if (told.verb != verb())
    throw DataError(server, fmt::format("it was asked for '{}' but answered '{}'", wire::name(verb()), wire::name(told.verb)));
  if (told.payload != 0 && told.payload != std::ssize(into))
    throw DataError(server, fmt::format("expected {} bytes, got {}", into.size(), told.payload));
  return told;
}

Introduction::Introduction(int worker, const ArenaLayout& layout, const JoinOptions& options, std::uint64_t token) {
  const std::string model = serialise(layout), coded = options.compression.describe();
  text = model + coded + options.terms;
  head = wire::pack(Verb::join, wire::Join{token, worker, std::ssize(model), std::ssize(coded)}, std::ssize(text));
}

void RemoteWorker::begin(int worker, std::vector<wire::Joined> places, const PushCompression& compression) {
  worker_ = worker;
  places_ = std::move(places);
  if (std::ranges::any_of(places_, [](const wire::Joined& place) { return place.answers != 0; }))
    answer_.resize(static_cast<std::size_t>(layout_.length));
  for (const wire::Joined& place : places_) {
    if (place.begin < 0 || place.end < place.begin || place.end > layout_.length)
      throw DataError("a server", fmt::format("it announced the elements {} to {} of {}", place.begin, place.end, layout_.length));
    if (compression.name.empty() || worker_ == kObserver) continue;
    encoders_.emplace_back(compression, parts_of(layout_).slice(place.begin, place.end), worker_, place.begin, layout_.length);
  }
}

void RemoteWorker::pull(float* into, float rate) {
  const std::string head = wire::pack(Verb::pull, wire::PullRequest{.rate = rate, .wanted = into != nullptr, .number = task_.step});
  std::vector<Question> questions(places_.size(), {.head = head});
  for (std::size_t i = 0; i < places_.size() && into; ++i) questions[i].into = std::as_writable_bytes(range(into, places_[i]));
  const std::vector<std::string> answers = ask(questions);
  for (std::size_t i = 0; i < answers.size(); ++i)
    if (wire::unpack_head(answers[i]).payload != std::ssize(questions[i].into))
      throw DataError("a server", "it sent fewer parameters than its range has");
}

Advice RemoteWorker::report(const Report& report, const float* statistics) {
  const auto payload = std::as_bytes(std::span(statistics, statistics ? static_cast<std::size_t>(layout_.statistics) : 0));
  Report numbered = report;
  numbered.number = task_.step;
  return wire::unpack<Advice>(ask_first({.head = wire::pack(Verb::report, numbered, std::ssize(payload)), .payload = payload}));
}

Admission RemoteWorker::push(float* gradient, const Push& push) {
  Push numbered = push;
  numbered.number = task_.step, numbered.complete_below = task_.complete_below;
  const std::vector<std::string> answers = ask(push_questions(gradient, numbered));
  for (std::size_t i = 0; i < answers.size() && !answer_.empty(); ++i)
    if (!answers[i].empty() && wire::unpack_head(answers[i]).payload > 0)
      std::ranges::copy(range(answer_.data(), places_[i]), range(gradient, places_[i]).begin());
  const std::string& first = answers.front();
  if (first.empty()) return {.fate = Admission::Fate::dropped, .gathered = 0};
  const auto pushed = wire::unpack<wire::Pushed>(first);
  return {static_cast<Admission::Fate>(pushed.fate), static_cast<int>(pushed.gathered)};
}

/// Either all servers use a gradient, or none does: one that is non-finite anywhere, or becomes so by compression, is not sent, and counted
/// as refused. A push is retried when a server with a journal, which recognises duplicates, is back. A server without one has gone back
/// to an older snapshot, and the push is dropped.
std::vector<Question> RemoteWorker::push_questions(float* gradient, const Push& push) {
  std::vector<std::span<const std::byte>> payloads(places_.size());
  std::int64_t kind = encoders_.empty() ? wire::PushRequest::plain : wire::PushRequest::coded;
  const bool usable = std::ranges::all_of(places_, [&](const wire::Joined& place) { return is_usable(range(gradient, place), push); });
  if (usable)
    at_once(places_.size(), [&](std::size_t i) {
      const auto part = range(gradient, places_[i]);
      payloads[i] = encoders_.empty() ? std::as_bytes(part) : encoders_[i].encode(part.data(), static_cast<double>(task_.epoch));
    });
  if (!usable || std::ranges::any_of(encoders_, &PushEncoder::overflowed)) {
    kind = wire::PushRequest::not_finite;
    payloads.assign(places_.size(), {});
  }
  std::vector<Question> questions;
  for (std::size_t i = 0; i < places_.size(); ++i)
    questions.push_back({.head = wire::pack(Verb::push, wire::PushRequest{push, kind}, std::ssize(payloads[i])),
                         .payload = payloads[i],
                         .into = std::as_writable_bytes(range(answer_.empty() ? gradient : answer_.data(), places_[i])),
                         .once = !places_[i].durable || push.number == 0});
  return questions;
}

bool RemoteWorker::cancelled() {
  const std::string answer = ask_first({.head = wire::pack(Verb::cancelled, wire::Nothing{}), .once = !retries()});
  return answer.empty() || wire::unpack<wire::Answer>(answer).yes;  // a server that was lost no longer knows of the pull
}

std::optional<Task> RemoteWorker::next(bool visits) {
  for (;;) {
    const auto answer = wire::unpack<wire::Next>(ask_first({.head = wire::pack(Verb::next, wire::NextRequest{visits})}));
    if (answer.kind == wire::Next::finished) return std::nullopt;
    if (answer.kind == wire::Next::order) {
      take_order();
      continue;
    }
    if (answer.kind == wire::Next::task) {
      task_ = answer.what;
      return answer.what;
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

std::int64_t RemoteWorker::length_in(const std::string& answer) const {
  const std::int64_t bytes = wire::unpack<wire::OrderSize>(answer).bytes;
  if (bytes < 0 || bytes > wire::longest_order(layout_.length))
    throw DataError("a server", fmt::format("it announced an order or an answer of {} bytes", bytes));
  return bytes;
}

// An order that changes meanwhile, or that a restarted server no longer has, is read when the worker asks for work again.
void RemoteWorker::take_order() {
  std::string order(static_cast<std::size_t>(length_in(ask_first({.head = wire::pack(Verb::order, wire::OrderRequest{})}))), '\0');
  if (order.empty()) return;
  const std::string told =
      ask_first({.head = wire::pack(Verb::order, wire::OrderRequest{std::ssize(order)}), .into = std::as_writable_bytes(std::span(order))});
  if (wire::unpack_head(told).payload != std::ssize(order)) return;
  const std::string answer = carry_out_ ? carry_out_(order) : "";
  ask_first({.head = wire::pack(Verb::answer, wire::Nothing{}, std::ssize(answer)), .payload = std::as_bytes(std::span(answer))});
}

// Of gRPC's servers an observer also sees the first, which gets no order. A server that is restarted between the two requests has lost its
// answer, and gets the order again.
std::vector<std::string> RemoteWorker::order(std::span<const std::string> orders) {
  const std::size_t first = places_.size() - orders.size();
  std::vector<std::string> answers(places_.size());
  for (int attempt = 0; attempt < kOrderAttempts; ++attempt) {
    std::vector<Question> questions(places_.size(), {.head = wire::pack(Verb::order, wire::OrderRequest{})});
    for (std::size_t i = 0; i < orders.size(); ++i)
      questions[first + i] = {.head = wire::pack(Verb::order, wire::OrderRequest{}, std::ssize(orders[i])),
                              .payload = std::as_bytes(std::span(orders[i]))};
    const std::vector<std::string> sizes = ask(questions);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      answers[i].resize(static_cast<std::size_t>(length_in(sizes[i])));
      questions[i] = {.head = wire::pack(Verb::order, wire::OrderRequest{std::ssize(answers[i])}),
                      .into = std::as_writable_bytes(std::span(answers[i]))};
    }
    const std::vector<std::string> told = ask(questions);
    const auto whole = [&](std::size_t i) { return wire::unpack_head(told[i]).payload == std::ssize(answers[i]); };
    if (std::ranges::all_of(std::views::iota(std::size_t{0}, answers.size()), whole))
      return {answers.begin() + static_cast<std::ptrdiff_t>(first), answers.end()};
  }
  throw DataError("a server", "it was restarted whenever it was given an order");
}

std::map<std::int64_t, std::int64_t> RemoteWorker::resumed() const {
  std::map<std::int64_t, std::int64_t> versions;
  for (const wire::Joined& place : places_)
    if (place.resumed >= 0) versions[place.begin] = place.resumed;
  return versions;
}

std::vector<Unsent> RemoteWorker::unsent() {
  std::vector<Unsent> all;
  for (std::size_t i = 0; i < encoders_.size(); ++i)
    all.push_back({places_[i].begin, encoders_[i].residual(), encoders_[i].velocity(), &encoders_[i].pushes()});
  return all;
}

void RemoteWorker::done(const Task& task, double loss_sum, double right, std::int64_t targets) {
  ask_first({.head = wire::pack(Verb::done, wire::Done{task, loss_sum, right, targets}), .once = !retries()});
}

}  // namespace paceline::ps
