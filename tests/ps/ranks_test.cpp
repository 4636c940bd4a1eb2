// Servers and workers as ranks of a communicator: what is pulled and pushed, who waits for whom, work that is dealt out, and what is
// refused. Ranks are threads here; tests/cli has them under mpirun.
#include "paceline/ps/transports/ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "paceline/base/error.h"
#include "paceline/comm/decorators/decorators.h"
#include "paceline/comm/engine.h"
#include "tests/ps/admissions.h"
#include "tests/ps/clocks.h"

namespace paceline::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Floats = std::vector<float>;

constexpr std::int64_t kLength = 70'000;  // longer than a piece of the mailbox between ranks
constexpr float kRate = 0.25f;

ArenaLayout layout() {
  return {.entries = {{"a.weight", {200, 300}, 0, 60'000, true},
                      {"a.bias", {40}, 60'000, 40, false},
                      {"b.weight", {9'900}, 60'096, 9'900, true}},
          .length = kLength,
          .statistics = 8};
}

/// Counts what its rank sends.
class Counting final : public comm::Decorator {
 public:
  Counting(std::unique_ptr<comm::Communicator> inner, std::atomic<std::int64_t>& bytes) : Decorator(std::move(inner)), bytes_(bytes) {}
  comm::Work start(const comm::Operation& operation) override {
    if (operation.kind == comm::Operation::Kind::send) bytes_ += operation.buffer.bytes();
    return inner().start(operation);
  }
  std::unique_ptr<comm::Communicator> split(int color, int key) override { return inner().split(color, key); }

 private:
  std::atomic<std::int64_t>& bytes_;
};

struct Settings {
  std::string consistency = "asp", rule = "asgd";
  int servers = 1, workers = 1;
  ConcurrentServer::Limits limits = {};
  ServiceOptions options = {};  // of the first server
  ServiceOptions others = {};
};

/// Servers in threads of their own; whoever has the test plays the workers.
class Fleet {
 public:
  explicit Fleet(const Settings& settings) {
    for (auto& rank : comm::local_group(settings.servers + settings.workers))
      ranks_.push_back(std::make_unique<Counting>(std::move(rank), sent));
    cuts = cut_ranges(segments_of(layout()), kLength, settings.servers, true);
    PsConfig config;
    config.rule = settings.rule, config.consistency = settings.consistency;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      Server::Setup setup;
      setup.segments = segments_of(layout()), setup.length = kLength, setup.begin = cuts[i], setup.end = cuts[i + 1];
      setup.statistics = i == 0 ? 8 : 0, setup.workers = settings.workers;
      auto server = std::make_unique<Server>(config, optim::OptimConfig{.momentum = 0.5}, setup);
      for (std::int64_t k = cuts[i]; k < cuts[i + 1]; ++k) server->parameters()[k - cuts[i]] = static_cast<float>(k % 17);
      concurrents.push_back(std::make_shared<ConcurrentServer>(std::move(server), settings.limits, steady_clock()));
      ServiceOptions options = i == 0 ? settings.options : settings.others;
      options.compression = settings.options.compression;
      options.begin = cuts[i], options.end = cuts[i + 1];
      services.push_back(serve_ranks(cluster(static_cast<int>(i)), concurrents.back(), layout(), options));
    }
    compression_ = settings.options.compression;
  }

  Cluster cluster(int rank) { return among(ranks_[static_cast<std::size_t>(rank)], std::ssize(cuts) - 1); }
  std::unique_ptr<RemoteClient> worker(int number, const ArenaLayout& model = layout()) {
    return connect_ranks(cluster(number + static_cast<int>(cuts.size()) - 1), model, {.worker = number, .compression = compression_});
  }

 private:
  std::vector<std::shared_ptr<comm::Communicator>> ranks_;  // outlive those who use them
  PushCompression compression_;

 public:
  std::atomic<std::int64_t> sent = 0;  // bytes, by all ranks
  std::vector<std::int64_t> cuts;
  std::vector<std::shared_ptr<ConcurrentServer>> concurrents;
  std::vector<std::unique_ptr<Service>> services;
};

Floats gradient_of(int worker, int step) {
  Floats gradient(kLength);
  for (std::int64_t i = 0; i < kLength; ++i)
    gradient[static_cast<std::size_t>(i)] = static_cast<float>((i * 7 + worker * 31 + step * 13) % 29 - 14) / 16;
  return gradient;
}

Floats pulled(Client& client) {
  Floats parameters(kLength, -1);
  client.pull(parameters.data(), kRate);
  return parameters;
}

std::int64_t version(Fleet& fleet) {
  return fleet.concurrents[0]->with([](Server& server) { return server.version(); });
}

template <class Condition>
bool soon(const Condition& condition) {
  for (int i = 0; i < 1000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

TEST(Ranks, CarryWhatAClientInTheServersProcessSees) {
  for (const std::string rule : {"asgd", "easgd"})
    for (const int servers : {1, 2, 3}) {
      Fleet near({.rule = rule, .servers = servers}), far({.rule = rule, .servers = servers});
      const auto expected = make_in_process_client(near.concurrents, near.cuts, 0);
      const auto worker = far.worker(0);
      const Floats statistics = {1, 2, 3, 4, 5, 6, 7, 8};
      for (int step = 0; step < 4; ++step) {
        EXPECT_EQ(pulled(*worker), pulled(*expected)) << rule << ", " << servers << " servers, step " << step;
        EXPECT_EQ(worker->report({.loss = 2}, statistics.data()).scale, expected->report({.loss = 2}, statistics.data()).scale);
        Floats here = gradient_of(0, step), there = here;
        EXPECT_EQ(worker->push(here.data(), {.rate = kRate}), expected->push(there.data(), {.rate = kRate}));
        if (rule == "easgd") {
          EXPECT_EQ(here, there);
        }
      }
      EXPECT_EQ(far.concurrents[0]->with([](Server& s) { return s.statistics()[7]; }),
                near.concurrents[0]->with([](Server& s) { return s.statistics()[7]; }));
    }
}

TEST(Ranks, ParametersThatNobodyWantsDoNotTravel) {
  Fleet near({.rule = "easgd", .servers = 2}), far({.rule = "easgd", .servers = 2});
  const auto expected = make_in_process_client(near.concurrents, near.cuts, 0);
  const auto worker = far.worker(0);
  const auto sent_by = [&](const auto& act) {
    const std::int64_t before = far.sent;
    act();
    return far.sent - before;
  };
  Floats here = gradient_of(0, 0), there = here;
  const auto push = [&] { EXPECT_EQ(worker->push(here.data(), {.rate = kRate}), expected->push(there.data(), {.rate = kRate})); };
  EXPECT_GT(sent_by([&] { EXPECT_EQ(pulled(*worker), pulled(*expected)); }), 4 * kLength);
  push();
  EXPECT_LT(sent_by([&] { worker->pull(nullptr, kRate), expected->pull(nullptr, kRate); }), 1000);
  push();
  EXPECT_EQ(here, there) << "the replica, which comes back";
}

TEST(Ranks, AGradientThatIsNotFiniteIsRefusedByAll) {
  Fleet fleet({.servers = 2});
  auto worker = fleet.worker(0);
  const Floats before = pulled(*worker);
  Floats gradient = gradient_of(0, 0);
  gradient.back() = NAN;  // in the second server's range alone
  EXPECT_EQ(worker->push(gradient.data(), {.rate = kRate}).fate, Admission::Fate::dropped);
  EXPECT_EQ(pulled(*worker), before);
  for (const auto& concurrent : fleet.concurrents) EXPECT_EQ(concurrent->with([](Server& server) { return server.refused(); }), 1);
}

TEST(Ranks, AServerLooksAtTheOthersParameters) {
  Fleet fleet({.servers = 2});
  auto worker = fleet.worker(0);
  Floats gradient = gradient_of(0, 0);
  pulled(*worker), worker->push(gradient.data(), {.rate = kRate});
  const Floats all = pulled(*worker);
  auto observer = connect_ranks(fleet.cluster(0), layout(), {.worker = kObserver});
  const Floats seen = pulled(*observer);
  const auto cut = static_cast<std::size_t>(fleet.cuts[1]);
  EXPECT_EQ(seen[cut - 1], -1) << "its own range is left alone";
  EXPECT_TRUE(std::equal(seen.begin() + static_cast<std::ptrdiff_t>(cut), seen.end(), all.begin() + static_cast<std::ptrdiff_t>(cut)));
  EXPECT_THAT(fleet.services[1]->workers(), ElementsAre(0));
  worker.reset();
  EXPECT_TRUE(soon([&] { return fleet.services[0]->deserted(); }));
  EXPECT_FALSE(fleet.services[1]->deserted()) << "somebody still looks";
  observer.reset();
  EXPECT_TRUE(soon([&] { return fleet.services[1]->deserted(); }));
}

TEST(Ranks, AServerGivesTheOthersOrders) {
  Settings settings{.servers = 3};
  settings.others.carry_out = [](std::string_view order) { return "done: " + std::string(order); };
  settings.others.resumed = 17;
  Fleet fleet(settings);
  auto observer = connect_ranks(fleet.cluster(0), layout(), {.worker = kObserver});
  EXPECT_THAT(observer->order(std::vector<std::string>{"a", "b"}), ElementsAre("done: a", "done: b"));
  const std::string large(100'000, 'x');
  EXPECT_THAT(observer->order(std::vector<std::string>{large, ""}), ElementsAre("done: " + large, "")) << "another length, and no order";
  EXPECT_THAT(observer->resumed(), ElementsAre(std::pair(fleet.cuts[1], 17), std::pair(fleet.cuts[2], 17)));
}

TEST(Ranks, AWorkerCarriesOutOrdersBeforeItIsGivenWork) {
  std::vector<std::string> orders = {"second", "first"}, answers;
  ServiceOptions options;
  options.next_task = [&](int, bool, bool& finished) -> std::optional<Task> { return finished = true, std::nullopt; };
  options.order = [&](int worker) { return worker == 0 && !orders.empty() ? orders.back() : ""; };
  options.answered = [&](int worker, std::string_view answer) {
    answers.push_back(std::to_string(worker) + std::string(answer));
    orders.pop_back();
  };
  Fleet fleet({.options = options});
  auto worker = fleet.worker(0);
  worker->on_order([](std::string_view order) { return " did " + std::string(order); });
  EXPECT_FALSE(worker->next());
  EXPECT_THAT(answers, ElementsAre("0 did first", "0 did second"));
}

TEST(Ranks, WaitForOneAnotherUnderBsp) {
  constexpr int kWorkers = 3, kRounds = 10;
  Fleet fleet({.consistency = "bsp", .servers = 2, .workers = kWorkers});
  std::vector<std::vector<Floats>> seen(kWorkers);
  {
    std::vector<std::jthread> workers;
    for (int number = 0; number < kWorkers; ++number)
      workers.emplace_back([&, number] {
        const auto worker = fleet.worker(number);
        for (int round = 0; round < kRounds; ++round) {
          seen[static_cast<std::size_t>(number)].push_back(pulled(*worker));
          Floats gradient = gradient_of(number, round);
          worker->push(gradient.data(), {.rate = kRate});
        }
      });
  }
  EXPECT_EQ(version(fleet), kRounds);
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
}

TEST(Ranks, DealOutWork) {
  std::vector<Task> tasks = {{.epoch = 1, .batch = 2, .step = 3, .rate = 0.5f}, {.epoch = 1, .batch = 3, .step = 4, .rate = 0.25f}};
  std::vector<Task> done;
  int refusals = 3;  // it asks again
  ServiceOptions options;
  options.next_task = [&](int worker, bool visits, bool& finished) -> std::optional<Task> {
    EXPECT_EQ(worker, 0);
    EXPECT_EQ(visits, done.empty());
    finished = done.size() == 2;
    if (done.size() == tasks.size() || refusals-- > 0) return std::nullopt;
    return tasks[done.size()];
  };
  options.task_done = [&](int, const Task& task, double loss, double, std::int64_t) {
    EXPECT_EQ(loss, 1.5);
    done.push_back(task);
  };
  Fleet fleet({.options = options});
  auto worker = fleet.worker(0);
  while (const auto task = worker->next(done.empty())) worker->done(*task, 1.5, 2, 3);
  worker.reset();
  EXPECT_EQ(done, tasks);
}

TEST(Ranks, TellWhatIsCancelled) {
  Fleet fleet({.consistency = "k_sync", .workers = 2});  // K = 1 of 2
  const auto fast = fleet.worker(0), slow = fleet.worker(1);
  pulled(*fast), pulled(*slow);
  EXPECT_FALSE(slow->cancelled());
  EXPECT_FALSE(slow->report({.loss = 1}, nullptr).cancelled);
  Floats gradient = gradient_of(0, 0);
  EXPECT_EQ(fast->push(gradient.data(), {.rate = kRate}), applied(1));
  EXPECT_TRUE(soon([&] { return slow->cancelled(); }));
  EXPECT_TRUE(slow->report({.loss = 1}, nullptr).cancelled);
  pulled(*slow);  // anew
  EXPECT_EQ(fleet.concurrents[0]->with([](Server& server) { return server.dropped(); }), 1);
}

TEST(Ranks, CompressedPushesAreWhatTheirCodeSays) {
  ServiceOptions options;
  options.compression.name = "fp16";
  Fleet fleet({.servers = 2, .options = options});
  const auto worker = fleet.worker(0);
  const Floats before = pulled(*worker), gradient = gradient_of(0, 1);  // sixteenths: exact in half precision
  Floats sent = gradient;
  worker->push(sent.data(), {.rate = kRate});
  const Floats after = pulled(*worker);
  for (const std::size_t i : {0, 5'000, 59'999, 60'010, 69'995}) EXPECT_EQ(after[i], before[i] - kRate * gradient[i]) << i;
}

TEST(Ranks, APullThatIsNeverGrantedEnds) {
  Fleet fleet({.consistency = "bsp", .workers = 2, .limits = {.wait = std::chrono::milliseconds(50)}});
  const auto early = fleet.worker(0), late = fleet.worker(1);
  pulled(*early), pulled(*late);
  Floats gradient = gradient_of(0, 0);
  early->push(gradient.data(), {.rate = kRate});
  try {
    pulled(*early);
    FAIL() << "worker 1 has not pushed";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.operation(), "pull");
    EXPECT_THAT(error.what(), HasSubstr("worker 1"));
  }
  late->push(gradient.data(), {.rate = kRate});
  EXPECT_NO_THROW(pulled(*early)) << "the server goes on";
}

TEST(Ranks, AnotherModelIsRefusedWithTheDifference) {
  Fleet fleet({.workers = 2});
  ArenaLayout other = layout();
  other.entries[0].shape = {300, 200};
  try {
    fleet.worker(0, other);
    FAIL() << "it has another model";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.weight"));
  }
  const auto good = fleet.worker(1);
  EXPECT_EQ(pulled(*good)[18], 1);
}

TEST(Ranks, TooFewAreRefused) {
  std::shared_ptr<comm::Communicator> alone = std::move(comm::local_group(1).front());
  try {
    among(alone, 1);
    FAIL() << "nobody works";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("mpirun -np 2"));
  }
}

}  // namespace
}  // namespace paceline::ps
