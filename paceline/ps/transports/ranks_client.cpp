// The worker's side: asks all servers at the same time, and waits for their answers.
#include <thread>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/ps/transports/parcels.h"
#include "paceline/ps/transports/ranks.h"
#include "paceline/ps/transports/ranks_message.h"

namespace paceline::ps {
namespace {

using wire::Verb;

constexpr Nanoseconds kGoodbye = std::chrono::seconds(10);       // for a server to hear that a worker leaves
constexpr Nanoseconds kAskAgain = std::chrono::milliseconds(5);  // for work, where there was none

/// One server, as a worker sees it.
struct Link {
  int rank = 0;
  wire::Joined place = {};
  Envelope asked = {}, answered = {};
};

/// What it is asked.
struct Question {
  std::string head;
  std::span<const std::byte> payload = {};
  std::span<std::byte> into = {};  // where the answer's payload goes
};

class RankClient final : public RemoteClient {
 public:
  RankClient(const Cluster& cluster, const Layout& layout, const JoinOptions& options);
  ~RankClient() override;

  int worker() const override { return worker_; }
  void pull(float* into, float rate) override;
  Advice report(const Report& report, const float* statistics) override;
  Verdict push(float* gradient, const Push& push) override;
  bool in_vain() override { return wire::unpack<wire::Answer>(ask(wire::pack(Verb::in_vain, wire::Nothing{}))).yes; }
  std::optional<Task> next() override;
  void done(const Task& task, double loss_sum, double right, std::int64_t targets) override {
    ask(wire::pack(Verb::done, wire::Done{task, loss_sum, right, targets}));
  }

 private:
  /// question(i) is for the server of links_[i]. Returns the answers' heads; throws what the first of them threw.
  template <class Make>
  std::vector<std::string> ask_all(std::span<Link> whom, const Make& question, Nanoseconds deadline);
  template <class Make>
  std::vector<std::string> ask_all(std::span<Link> whom, const Make& question) {
    return ask_all(whom, question, deadline_);
  }
  /// The first server.
  std::string ask(const std::string& head, std::span<const std::byte> payload = {}) {
    return ask_all(std::span(links_).first(1), [&](std::size_t) { return Question{head, payload}; }).front();
  }
  std::span<float> range(float* arena, std::size_t link) const {
    return {arena + links_[link].place.begin, static_cast<std::size_t>(links_[link].place.end - links_[link].place.begin)};
  }

  std::shared_ptr<comm::Communicator> ranks_;
  Layout layout_;
  int worker_;
  Nanoseconds deadline_;
  std::vector<Link> links_;
  std::vector<PushEncoder> encoders_;  // by link; none: pushes go as they are
  double epoch_ = 0;                   // of the last task
};

RankClient::RankClient(const Cluster& cluster, const Layout& layout, const JoinOptions& options)
    : ranks_(cluster.ranks), layout_(layout), worker_(options.worker), deadline_(options.deadline) {
  const PushCompression& compression = options.compression;
  for (int rank = 0; rank < static_cast<int>(cluster.servers.size()); ++rank)
    if (rank != ranks_->rank()) links_.push_back({.rank = rank});
  const std::string model = serialise(layout), coded = compression.describe(), text = model + coded + options.terms;
  const wire::Join join{.worker = worker_, .layout = std::ssize(model), .compression = std::ssize(coded)};
  const auto head = wire::pack(Verb::join, join, std::ssize(text));
  const auto answers = ask_all(links_, [&](std::size_t) { return Question{head, std::as_bytes(std::span(text))}; });
  for (std::size_t i = 0; i < links_.size(); ++i) {
    links_[i].place = wire::unpack<wire::Joined>(answers[i]);
    if (compression.name.empty()) continue;
    const wire::Joined& place = links_[i].place;
    encoders_.emplace_back(compression, parts_of(layout).slice(place.begin, place.end), worker_, place.begin);
  }
}

RankClient::~RankClient() {
  if (std::uncaught_exceptions() > 0) return;  // whoever misses this rank is told by the engine
  try {
    ask_all(
        links_, [](std::size_t) { return Question{wire::pack(Verb::leave, wire::Nothing{})}; }, kGoodbye);
  } catch (const std::exception& error) {
    log::warning("{}", error.what());
  }
}

template <class Make>
std::vector<std::string> RankClient::ask_all(std::span<Link> whom, const Make& question, Nanoseconds deadline) {
  std::vector<Question> questions;
  std::vector<comm::Work> sends, heads, payloads;
  std::vector<std::string> answers;
  const Link* at = whom.data();  // whom a failure concerns
  try {
    for (std::size_t i = 0; i < whom.size(); ++i) {
      questions.push_back(question(i));
      Link& link = whom[i];
      at = &link;
      const comm::Options options{.deadline = deadline + Nanoseconds(link.place.wait)};
      link.asked.put(questions[i].head);
      sends.push_back(ranks_->start(comm::send(link.asked.buffer(), link.rank, kAsk, options)));
      if (!questions[i].payload.empty())
        sends.push_back(ranks_->start(comm::send(buffer_of(questions[i].payload), link.rank, kAskPayload, options)));
      heads.push_back(ranks_->start(comm::receive(link.answered.buffer(), link.rank, kAnswer, options)));
    }
    std::vector<std::string> failures(whom.size());
    for (std::size_t i = 0; i < whom.size(); ++i) {
      at = &whom[i];
      heads[i].wait();
      answers.push_back(whom[i].answered.get());
      const wire::Head told = wire::unpack_head(answers[i]);
      if (told.verb != Verb::error && told.payload != 0 && told.payload != std::ssize(questions[i].into))
        throw DataError(fmt::format("rank {}", at->rank), fmt::format("expected {} bytes, got {}", questions[i].into.size(), told.payload));
      std::span<std::byte> into = questions[i].into;
      if (told.verb == Verb::error) {
        failures[i].resize(static_cast<std::size_t>(told.payload));
        into = std::as_writable_bytes(std::span(failures[i]));
      }
      if (told.payload > 0)
        payloads.push_back(ranks_->start(comm::receive(buffer_of(into), at->rank, kAnswerPayload, {.deadline = deadline})));
    }
    for (const comm::Work& work : payloads) work.wait();
    for (const comm::Work& work : sends) work.wait();
    for (std::size_t i = 0; i < whom.size(); ++i)
      if (wire::unpack_head(answers[i]).verb == Verb::error) wire::raise(answers[i], failures[i]);
  } catch (const PeerError& error) {
    if (answers.size() == whom.size()) throw;  // the server's own words
    throw PeerError(at->rank, std::string(wire::name(wire::unpack_head(questions.back().head).verb)), error.step(),
                    fmt::format("server {} (rank {}) did not answer worker {}: {}", at->rank, at->rank, worker_, error.what()));
  }
  return answers;
}

void RankClient::pull(float* into, float rate) {
  std::vector<float> unwanted(into ? 0 : static_cast<std::size_t>(layout_.length));  // servers always send them
  if (!into) into = unwanted.data();
  ask_all(links_, [&](std::size_t i) {
    return Question{.head = wire::pack(Verb::pull, wire::PullRequest{rate}), .into = std::as_writable_bytes(range(into, i))};
  });
}

Advice RankClient::report(const Report& report, const float* statistics) {
  const auto payload = std::as_bytes(std::span(statistics, statistics ? static_cast<std::size_t>(layout_.statistics) : 0));
  return wire::unpack<Advice>(ask(wire::pack(Verb::report, report, std::ssize(payload)), payload));
}

Verdict RankClient::push(float* gradient, const Push& push) {
  std::vector<std::span<float>> ranges;
  for (std::size_t i = 0; i < links_.size(); ++i) ranges.push_back(range(gradient, i));
  const Parcels parcels = parcels_of(ranges, encoders_, epoch_, [&](const auto& act) {
    for (std::size_t i = 0; i < links_.size(); ++i) act(i);
  });
  const auto answers = ask_all(links_, [&](std::size_t i) {
    const auto payload = parcels.payloads[i];
    return Question{wire::pack(Verb::push, wire::PushRequest{push, parcels.kind}, std::ssize(payload)), payload,
                    std::as_writable_bytes(ranges[i])};
  });
  const auto first = wire::unpack<wire::Pushed>(answers.front());
  return {static_cast<Verdict::Fate>(first.fate), static_cast<int>(first.gathered)};
}

std::optional<Task> RankClient::next() {
  for (;;) {
    const auto answer = wire::unpack<wire::Next>(ask(wire::pack(Verb::next, wire::Nothing{})));
    if (answer.kind == wire::Next::finished) return std::nullopt;
    if (answer.kind == wire::Next::task) {
      epoch_ = static_cast<double>(answer.what.epoch);
      return answer.what;
    }
    std::this_thread::sleep_for(kAskAgain);
  }
}

}  // namespace

std::unique_ptr<RemoteClient> connect_ranks(const Cluster& cluster, const Layout& layout, const JoinOptions& options) {
  return std::make_unique<RankClient>(cluster, layout, options);
}

}  // namespace paceline::ps
