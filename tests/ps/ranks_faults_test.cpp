// Ranks that do not keep to the conversation: servers whose answers are none, workers that begin a message and do not end it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/ps/transports/desk.h"
#include "paceline/ps/transports/ranks.h"
#include "paceline/ps/transports/ranks_message.h"
#include "paceline/ps/transports/remote_worker.h"
#include "tests/ps/clocks.h"

namespace paceline::ps {
namespace {

using testing::HasSubstr;
using wire::Verb;

constexpr std::int64_t kLength = 1000;

ArenaLayout layout() { return {.entries = {{"weight", {kLength}, 0, kLength, true}}, .length = kLength}; }

std::shared_ptr<ConcurrentServer> make_concurrent(const ConcurrentServer::Limits& limits = {}) {
  Server::Setup setup;
  setup.segments = segments_of(layout()), setup.length = setup.end = kLength;
  return std::make_shared<ConcurrentServer>(std::make_unique<Server>(PsConfig{}, optim::OptimConfig{}, setup), limits, steady_clock());
}

std::vector<std::shared_ptr<comm::Communicator>> make_ranks(int count) {
  std::vector<std::shared_ptr<comm::Communicator>> ranks;
  for (auto& rank : comm::local_group(count)) ranks.push_back(std::move(rank));
  return ranks;
}

template <class Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

/// Two ranks: a server that lets everybody join and go, and gives one answer to all other questions; and its worker.
class Impostor {
 public:
  explicit Impostor(std::string answer) {
    thread_ = std::jthread([this, answer = std::move(answer)] {
      for (Verb verb = Verb::join; verb != Verb::leave;) {
        Envelope asked, answered;
        ranks_[0]->run(comm::receive(asked.buffer(), 1, kAsk));
        const wire::Head head = wire::unpack_head(asked.get());
        verb = head.verb;
        std::vector<std::byte> text(static_cast<std::size_t>(head.payload));
        if (!text.empty()) ranks_[0]->run(comm::receive(buffer_of(text), 1, kAskPayload));
        answered.put(verb == Verb::join    ? wire::pack(verb, wire::Joined{.end = kLength})
                     : verb == Verb::leave ? wire::pack(verb, wire::Nothing{})
                                           : answer);
        ranks_[0]->run(comm::send(answered.buffer(), 1, kAnswer));
      }
    });
  }
  std::unique_ptr<RemoteClient> worker() { return connect_ranks(among(ranks_[1], 1), layout(), {.worker = 0}); }

 private:
  std::vector<std::shared_ptr<comm::Communicator>> ranks_ = make_ranks(2);
  std::jthread thread_;
};

std::string complaint_about(const std::string& answer) {
  Impostor impostor(answer);
  const auto worker = impostor.worker();
  std::vector<float> parameters(kLength);
  try {
    worker->pull(parameters.data(), 0);
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

TEST(RankFaults, AnAnswerToSomethingElseIsRefused) {
  EXPECT_THAT(complaint_about(wire::pack(Verb::report, Advice{})), testing::AllOf(HasSubstr("'pull'"), HasSubstr("'report'")));
}

TEST(RankFaults, PayloadsThatDoNotFitAreRefusedBeforeTheyAreReceived) {
  EXPECT_THAT(complaint_about(wire::pack(Verb::pull, wire::Pulled{}, 4 * kLength + 4)), HasSubstr("expected 4000 bytes, got 4004"));
  EXPECT_THAT(complaint_about(wire::pack(Verb::pull, wire::Pulled{})), HasSubstr("fewer parameters"));
  EXPECT_THAT(complaint_about(wire::pack(Verb::error, wire::Failure{}, std::int64_t{1} << 40)), HasSubstr("1099511627776"));
}

TEST(RankFaults, AMessageThatDoesNotEndIsWaitedForAsLongAsTheHostSays) {
  const auto ranks = make_ranks(2);
  std::atomic<bool> failed = false;
  ServiceOptions options;
  options.failed = [&](const std::exception_ptr&) { failed = true; };
  const auto service = serve_ranks(among(ranks[0], 1), make_concurrent({.silence = std::chrono::milliseconds(50)}), layout(), options);
  Envelope envelope;
  envelope.put(wire::pack(Verb::join, wire::Join{}, 100));  // and that is all
  ranks[1]->run(comm::send(envelope.buffer(), 0, kAsk));
  EXPECT_TRUE(soon([&] { return failed.load(); }));
  EXPECT_THROW(service->deserted(), PeerError);
}

TEST(RankFaults, AWorkerThatCannotBeUnderstoodIsRefusedAndTheOthersGoOn) {
  const auto ranks = make_ranks(3);
  std::atomic<int> lost = 0;
  ServiceOptions options;
  options.next_task = [](int, bool, bool&) { return Task{}; };
  options.task_lost = [&](int worker, const Task&) { lost += worker == 1; };
  const auto concurrent = make_concurrent();
  const auto service = serve_ranks(among(ranks[0], 1), concurrent, layout(), options);
  const auto good = connect_ranks(among(ranks[1], 1), layout(), {.worker = 0});
  const auto ask = [&](const std::string& head, std::string_view text = {}) {
    Envelope question, answer;
    question.put(head);
    ranks[2]->run(comm::send(question.buffer(), 0, kAsk));
    if (!text.empty()) ranks[2]->run(comm::send(buffer_of(std::as_bytes(std::span(text))), 0, kAskPayload));
    ranks[2]->run(comm::receive(answer.buffer(), 0, kAnswer));
    return wire::unpack_head(answer.get());
  };
  const Introduction introduction(1, layout(), {});
  EXPECT_EQ(ask(introduction.head, introduction.text).verb, Verb::join);
  EXPECT_EQ(ask(wire::pack(Verb::next, wire::NextRequest{})).verb, Verb::next);
  const wire::Head told = ask("nobody speaks like this");
  ASSERT_EQ(told.verb, Verb::error);
  std::string why(static_cast<std::size_t>(told.payload), ' ');
  ranks[2]->run(comm::receive(buffer_of(std::as_writable_bytes(std::span(why))), 0, kAnswerPayload));
  EXPECT_THAT(why, HasSubstr("not Paceline"));
  EXPECT_TRUE(soon([&] { return service->workers() == std::vector<int>{0}; }));
  EXPECT_EQ(lost, 1) << "what it had is handed back";
  std::vector<float> values(kLength);
  good->pull(values.data(), 1);
  good->push(values.data(), {.rate = 1});
  EXPECT_EQ(concurrent->with([](Server& server) { return server.version(); }), 1);
  EXPECT_FALSE(service->deserted());
}

TEST(RankFaults, AServerThatNeverAnswersIsGivenUp) {
  for (int trial = 0; trial < 3; ++trial) {
    const auto ranks = make_ranks(3);
    try {
      connect_ranks(among(ranks[2], 2), layout(), {.worker = 0, .deadline = std::chrono::milliseconds(20)});
      FAIL() << "nobody is there";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.operation(), "join");
      EXPECT_THAT(error.what(), HasSubstr("did not answer rank 2"));
    }
  }
}

TEST(RankFaults, AnAnswerThatComesTooLateIsNotWrittenToMemoryThatIsGone) {
  const auto ranks = make_ranks(3);
  Envelope nonsense, late, seen;
  nonsense.put(wire::pack(Verb::report, Advice{})), late.put(wire::pack(Verb::join, wire::Joined{}));
  const comm::Work answer = ranks[0]->start(comm::send(nonsense.buffer(), 2, kAnswer));
  EXPECT_THROW(connect_ranks(among(ranks[2], 2), layout(), {.worker = 0}), DataError);
  const comm::Work answer_too_late = ranks[1]->start(comm::send(late.buffer(), 2, kAnswer));
  ranks[2]->run(comm::receive(seen.buffer(), 1, kAnswer));  // nobody else waits for it
  EXPECT_EQ(seen.get(), late.get());
  answer.wait(), answer_too_late.wait();
}

TEST(RankFaults, AServerThatIsGoneListensNoMore) {
  const auto ranks = make_ranks(2);
  serve_ranks(among(ranks[0], 1), make_concurrent(), layout(), {}).reset();
  Envelope question, seen;
  question.put(wire::pack(Verb::next, wire::NextRequest{}));
  const comm::Work asking = ranks[1]->start(comm::send(question.buffer(), 0, kAsk));
  ranks[0]->run(comm::receive(seen.buffer(), 1, kAsk));
  EXPECT_EQ(seen.get(), question.get());
  asking.wait();
}

TEST(RankFaults, WhoOnlyLooksPushesNothing) {
  const auto concurrent = make_concurrent();
  Desk desk(*concurrent, layout(), {.end = kLength}, kObserver);
  EXPECT_TRUE(desk.room_for(wire::pack(Verb::pull, wire::PullRequest{})).empty());
  EXPECT_THROW(desk.room_for(wire::pack(Verb::pull, wire::PullRequest{.wanted = false})), DataError);
  EXPECT_THROW(desk.room_for(wire::pack(Verb::push, wire::PushRequest{}, 4 * kLength)), DataError);
  EXPECT_THROW(desk.room_for(wire::pack(Verb::report, Report{})), DataError);
}

}  // namespace
}  // namespace paceline::ps
