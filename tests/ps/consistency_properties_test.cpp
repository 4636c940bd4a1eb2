// Consistencies under random orders of events, with workers that come and go: bounds, no deadlock, equalities among them, save and load.
#include "paceline/ps/consistency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "tests/ps/admissions.h"

namespace paceline::ps {
namespace {

/// What a runner knows of the workers, and chooses from.
class Crowd {
 public:
  Crowd(int workers, int numbers, std::uint64_t seed) : numbers_(numbers), random_(seed, Purpose::test) {
    for (int worker = 0; worker < workers; ++worker) computing_[worker] = false;
  }

  struct Event {
    enum class Kind { join, leave, pull, push, refuse } kind;
    int worker;
    double loss = 0;
  };

  /// The next event that `consistency` permits; numbers join and leave now and then. Fails where somebody is present and nobody can
  /// proceed.
  Event next(const Consistency& consistency) {
    std::vector<Event> possible;
    for (const auto& [worker, computing] : computing_) {
      if (computing) possible.push_back({Event::Kind::push, worker, random_.uniform_double() + 0.1});
      if (computing && random_.below(4) == 0) possible.push_back({Event::Kind::refuse, worker});
      if (consistency.may_pull(worker)) possible.push_back({Event::Kind::pull, worker});
    }
    EXPECT_TRUE(computing_.empty() || !possible.empty()) << "deadlock";
    const int number = static_cast<int>(random_.below(static_cast<std::uint64_t>(numbers_)));
    if (possible.empty() || random_.below(10) == 0) return {computing_.contains(number) ? Event::Kind::leave : Event::Kind::join, number};
    return possible[random_.below(possible.size())];
  }

  Admission play(const Event& event, Consistency& consistency) {
    switch (event.kind) {
      case Event::Kind::join:
        computing_[event.worker] = false;
        consistency.joined(event.worker);
        return kNothing;
      case Event::Kind::leave: computing_.erase(event.worker); return consistency.left(event.worker);
      case Event::Kind::pull:
        computing_[event.worker] = true;
        consistency.pulled(event.worker);
        return kNothing;
      case Event::Kind::push: computing_[event.worker] = false; return consistency.pushed(event.worker, event.loss);
      case Event::Kind::refuse:
        computing_[event.worker] = false;
        consistency.refused(event.worker);
        return kNothing;
    }
    return kNothing;
  }

 private:
  int numbers_;
  RandomStream random_;
  std::map<int, bool> computing_;  // of those present
};

TEST(ConsistencyProperties, SspHoldsItsBoundWhoeverComesAndGoes) {
  for (const std::int64_t bound : {0, 1, 3}) {
    const auto ssp = make_consistency("ssp", {.bound = bound}, 5);
    Crowd crowd(5, 7, 11);
    std::map<int, std::int64_t> clocks{{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}};
    const auto slowest = [&] { return std::ranges::min(clocks | std::views::values); };
    for (int i = 0; i < 10000 && !HasFailure(); ++i) {
      const auto event = crowd.next(*ssp);
      if (event.kind == Crowd::Event::Kind::pull) {
        EXPECT_LE(clocks[event.worker] - slowest(), bound);
      } else if (event.kind == Crowd::Event::Kind::push) {
        ++clocks[event.worker];
        EXPECT_LE(clocks[event.worker] - slowest(), bound + 1);
      } else if (event.kind == Crowd::Event::Kind::leave) {
        clocks.erase(event.worker);
      } else if (event.kind == Crowd::Event::Kind::join) {
        clocks[event.worker] = clocks.empty() ? 0 : slowest();
      }
      const Admission admission = crowd.play(event, *ssp);
      if (event.kind == Crowd::Event::Kind::push) {
        EXPECT_EQ(admission, applied(1));
      }
    }
  }
}

TEST(ConsistencyProperties, ARefusedPushBringsNobodyBack) {
  for (const auto& row : consistencies()) {
    const auto consistency = make_consistency(std::string(row.key), {}, 3);
    consistency->pulled(1);
    consistency->left(1);
    consistency->refused(1);  // it came too late
    EXPECT_FALSE(consistency->may_pull(1)) << row.key;
  }
}

/// All that an observer sees of a consistency over a random order of events. `before` acts ahead of each event.
template <class Before>
std::vector<int> history(std::unique_ptr<Consistency>& consistency, int workers, int numbers, std::uint64_t seed, Before before) {
  Crowd crowd(workers, numbers, seed);
  std::vector<int> seen;
  for (int i = 0; i < 4000 && !testing::Test::HasFailure(); ++i) {
    before(i);
    const auto event = crowd.next(*consistency);
    const Admission admission = crowd.play(event, *consistency);
    seen.insert(seen.end(), {static_cast<int>(event.kind), event.worker, static_cast<int>(admission.fate), admission.gathered});
    for (int worker = 0; worker < numbers; ++worker)
      seen.push_back(consistency->may_pull(worker) + 2 * static_cast<int>(consistency->cancelled(worker)));
  }
  return seen;
}

std::vector<int> history(const std::string& name, const ConsistencyConfig& config, int workers, int numbers, std::uint64_t seed) {
  auto consistency = make_consistency(name, config, workers);
  return history(consistency, workers, numbers, seed, [](int) {});
}

TEST(ConsistencyProperties, NobodyWaitsForEver) {
  for (const auto& row : consistencies())
    for (const std::int64_t group : {0, 1, 4})
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        SCOPED_TRACE(std::string(row.key) + " with K = " + std::to_string(group));
        history(std::string(row.key), {.bound = group, .group = group}, 4, 6, seed);
      }
}

/// Four workers that come and go: the most gradients in an update, the oldest gradient that was used, and whether anybody had to wait.
struct Observed {
  int gathered = 0;
  std::int64_t staleness = 0;
  bool waited = false;
};
Observed observe(const std::string& name) {
  const auto consistency = make_consistency(name, {.bound = 1, .group = 2}, 4);
  Crowd crowd(4, 4, 7);
  Observed observed;
  std::int64_t version = 0;
  std::map<int, std::int64_t> pulled;
  for (int i = 0; i < 4000; ++i) {
    const auto event = crowd.next(*consistency);
    const Admission admission = crowd.play(event, *consistency);
    if (event.kind == Crowd::Event::Kind::pull) pulled[event.worker] = version;
    if (event.kind == Crowd::Event::Kind::push) observed.waited |= !consistency->may_pull(event.worker);
    if (event.kind != Crowd::Event::Kind::push || admission.fate == Admission::Fate::dropped) continue;
    observed.gathered = std::max(observed.gathered, admission.gathered);
    observed.staleness = std::max(observed.staleness, version - pulled[event.worker]);
    version += admission.fate == Admission::Fate::applied;
  }
  return observed;
}

/// Whether every update of four workers that stay has a gradient of each, in whatever order they come.
bool has_everybody(const std::string& name) {
  const auto consistency = make_consistency(name, {.bound = 0, .group = 2}, 4);
  RandomStream random(3, Purpose::test);
  std::set<int> computing, contributed;
  bool complete = true;
  for (int i = 0; i < 4000; ++i) {
    const auto worker = static_cast<int>(random.below(4));
    if (!computing.contains(worker)) {
      if (!consistency->may_pull(worker)) continue;
      consistency->pulled(worker);
      computing.insert(worker);
      continue;
    }
    computing.erase(worker);
    const Admission admission = consistency->pushed(worker, 1);
    if (admission.fate != Admission::Fate::dropped) contributed.insert(worker);
    if (admission.fate != Admission::Fate::applied) continue;
    complete = complete && contributed.size() == 4;
    contributed.clear();
  }
  return complete;
}

TEST(ConsistencyProperties, DoWhatTheirRowOfTheTableSays) {
  for (const auto& row : consistencies()) {
    const Observed observed = observe(std::string(row.key));
    EXPECT_EQ(observed.gathered > 1, row.make.gathers) << row.key;
    EXPECT_EQ(observed.staleness > 0, row.make.stale) << row.key;
    EXPECT_EQ(observed.waited, row.make.waits) << row.key;
    EXPECT_EQ(has_everybody(std::string(row.key)), row.make.synchronous) << row.key;
    EXPECT_EQ(row.make.gathers && !row.make.synchronous, row.make.chooses) << row.key;
  }
}

TEST(ConsistencyProperties, KSyncOfAllIsBsp) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) EXPECT_EQ(history("k_sync", {.group = 4}, 4, 4, seed), history("bsp", {}, 4, 4, seed));
}

TEST(ConsistencyProperties, KOfOneIsAsp) {
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    for (const char* name : {"k_async", "k_batch_async"})
      EXPECT_EQ(history(name, {.group = 1}, 4, 6, seed), history("asp", {}, 4, 6, seed)) << name;
}

TEST(ConsistencyProperties, AdasyncWithoutExponentIsKAsync) {
  EXPECT_EQ(history("adasync", {.group = 2, .loss_exponent = 0}, 4, 4, 1), history("k_async", {.group = 2}, 4, 4, 1));
}

TEST(ConsistencyProperties, DecidesTheSameAfterSaveAndLoad) {
  const ConsistencyConfig config{.bound = 1, .group = 2, .loss_exponent = 2};
  for (const auto& row : consistencies()) {
    const std::string name(row.key);
    auto consistency = make_consistency(name, config, 5);
    const auto reload = [&](int i) {
      if (i % 7 != 3) return;
      auto fresh = make_consistency(name, config, 5);
      fresh->load(consistency->save());
      consistency = std::move(fresh);
    };
    EXPECT_EQ(history(consistency, 5, 6, 3, reload), history(name, config, 5, 6, 3)) << name;
  }
}

TEST(ConsistencyProperties, RefusesStatesThatAreNotItsOwnAndStaysAsItWas) {
  for (const auto& row : consistencies()) {
    const auto consistency = make_consistency(std::string(row.key), {}, 3);
    consistency->pulled(1);
    const auto good = consistency->save();
    auto cut = good, wild = good;
    cut.pop_back();
    wild.back() = 99;
    for (const auto& bad : {cut, wild, std::vector<std::int64_t>{-1}})
      EXPECT_THROW(consistency->load(bad), ConfigError) << row.key << ' ' << testing::PrintToString(bad);
    EXPECT_EQ(consistency->save(), good) << row.key;
  }
  constexpr std::int64_t kWaiting = 3;
  EXPECT_THROW(make_consistency("bsp", {}, 2)->load(std::vector<std::int64_t>{2, 0, kWaiting, 1, kWaiting}), ConfigError)
      << "everybody would wait for ever";
}

}  // namespace
}  // namespace paceline::ps
