// Chance decides who is lost, and when: every minibatch counts once all the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "paceline/base/temporary_folder.h"
#include "tests/ps/replica.h"

namespace paceline::ps {
namespace {

using testing::Each;

/// Workers and servers that are lost at any moment, also between the two servers of one push. Every minibatch is dealt out until somebody
/// has heard from all servers that they have it.
class Chaos {
 public:
  Chaos(const ReplicaKind& kind, int servers, const std::filesystem::path& folder, std::uint64_t seed)
      : random_(seed, Purpose::test, 5), workers_(static_cast<std::size_t>(kind.workers)) {
    for (int i = 0; i < servers; ++i) servers_.push_back(std::make_unique<Replica>(kind, folder / std::to_string(i)));
    for (Worker& worker : workers_) worker.joined.assign(servers_.size(), true);
  }

  void run(std::int64_t tasks) {
    for (std::int64_t number = tasks; number > 0; --number) queue_.push_back(number);
    for (int events = 0; std::ssize(done_) < tasks; ++events) {
      ASSERT_LT(events, 500 * tasks) << "nobody gets on";
      const auto index = static_cast<int>(random_.below(workers_.size()));
      if (random_.below(12) == 0) servers_[random_.below(servers_.size())]->kill(), everybody_rejoins_ = true;
      if (std::exchange(everybody_rejoins_, false))
        for (Worker& worker : workers_) worker.joined.assign(servers_.size(), false);
      if (random_.below(20) == 0) lose(index);
      act(index);
    }
  }
  Replica& server(std::size_t i) { return *servers_[i]; }

 private:
  struct Worker {
    std::vector<bool> joined;
    std::int64_t task = 0;
    std::size_t pushed = 0;  // servers
    bool computes = false;
  };

  void join(int index) {
    for (std::size_t i = 0; i < servers_.size(); ++i)
      if (!workers_[static_cast<std::size_t>(index)].joined[i]) servers_[i]->concurrent().join(index);
    workers_[static_cast<std::size_t>(index)].joined.assign(servers_.size(), true);
  }

  /// Its process is gone; another takes its number.
  void lose(int index) {
    Worker& worker = workers_[static_cast<std::size_t>(index)];
    for (const auto& server : servers_) server->concurrent().leave(index);
    if (worker.task > 0 && !done_.contains(worker.task)) queue_.push_back(worker.task);
    worker = {.joined = std::vector<bool>(servers_.size(), false)};
  }

  void act(int index) {
    Worker& worker = workers_[static_cast<std::size_t>(index)];
    join(index);
    if (worker.task == 0) {
      if (queue_.empty()) return;
      // Now and then one that somebody else still computes, as after a restart of the first server.
      const bool twice = random_.below(6) == 0;
      worker.task = queue_.back();
      if (!twice) queue_.pop_back();
    }
    if (!worker.computes) {
      const auto lets = [&](const auto& server) { return server->concurrent().may_pull(index); };
      const auto idle = [](const Worker& one) { return !one.computes; };
      if (!std::ranges::all_of(servers_, lets) && !std::ranges::all_of(workers_, idle)) return;
      try {
        for (const auto& server : servers_) server->pull(index);
        worker.computes = true;
      } catch (const PeerError&) {  // it waits for one that has no work yet
      }
      return;
    }
    servers_[worker.pushed]->push(index, worker.task);
    if (random_.below(5) == 0) servers_[worker.pushed]->push(index, worker.task);
    if (++worker.pushed < servers_.size()) return;
    done_.insert(worker.task);
    std::erase_if(queue_, [&](std::int64_t number) { return number == worker.task; });
    worker.task = 0, worker.pushed = 0, worker.computes = false;
  }

  RandomStream random_;
  std::vector<std::unique_ptr<Replica>> servers_;
  std::vector<Worker> workers_;
  std::vector<std::int64_t> queue_;
  std::set<std::int64_t> done_;
  bool everybody_rejoins_ = false;
};

TEST(ExactlyOnceChaos, WhoeverIsLostWhenever) {
  const std::tuple<std::string, std::string, int> kinds[] = {
      {"asgd", "asp", 2}, {"dc_asgd", "asp", 1}, {"asgd", "ssp", 2}, {"average", "bsp", 1}, {"average", "k_batch_async", 1}};
  for (const auto& [rule, consistency, servers] : kinds)
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const TemporaryFolder folder;
      Chaos chaos({.rule = rule, .consistency = consistency, .workers = 3}, servers, folder.path(), seed);
      chaos.run(60);
      for (int i = 0; i < servers; ++i) {
        Replica& server = chaos.server(static_cast<std::size_t>(i));
        EXPECT_EQ(server.gradients(), 60) << rule << ' ' << consistency << ", server " << i << ", seed " << seed;
        const bool one_by_one = consistency == "asp" || consistency == "ssp";
        EXPECT_EQ(server.version(), one_by_one ? 60 : server.version());
        EXPECT_THAT(server.parameters(), Each(rule == "asgd" ? -60 : server.parameters()[0]));
      }
    }
}

}  // namespace
}  // namespace paceline::ps
