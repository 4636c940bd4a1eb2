// Consistencies under scripted orders of events, and their settings.
#include "paceline/ps/consistency.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "paceline/base/error.h"
#include "tests/ps/admissions.h"

namespace paceline::ps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kNoLoss = std::numeric_limits<double>::quiet_NaN();

std::vector<int> who_may_pull(const Consistency& consistency, int workers) {
  std::vector<int> who;
  for (int worker = 0; worker < workers; ++worker)
    if (consistency.may_pull(worker)) who.push_back(worker);
  return who;
}

std::vector<int> who_is_cancelled(const Consistency& consistency, int workers) {
  std::vector<int> who;
  for (int worker = 0; worker < workers; ++worker)
    if (consistency.cancelled(worker)) who.push_back(worker);
  return who;
}

void pull(Consistency& consistency, std::initializer_list<int> workers) {
  for (const int worker : workers) {
    ASSERT_TRUE(consistency.may_pull(worker)) << worker;
    consistency.pulled(worker);
  }
}

Admission push(Consistency& consistency, int worker, double loss = kNoLoss) { return consistency.pushed(worker, loss); }

TEST(Consistency, BspMakesOneUpdateOfAllAndNobodyPullsBefore) {
  const auto bsp = make_consistency("bsp", {}, 3);
  pull(*bsp, {0, 1, 2});
  EXPECT_EQ(push(*bsp, 1), gathered(1));
  EXPECT_EQ(push(*bsp, 0), gathered(2));
  EXPECT_THAT(who_may_pull(*bsp, 3), IsEmpty());
  EXPECT_EQ(push(*bsp, 2), applied(3));
  EXPECT_THAT(who_may_pull(*bsp, 3), ElementsAre(0, 1, 2));
}

TEST(Consistency, BspWaitsForWhoeverIsThere) {
  const auto bsp = make_consistency("bsp", {}, 3);
  pull(*bsp, {0, 1, 2});
  EXPECT_EQ(push(*bsp, 0), gathered(1));
  bsp->joined(7);
  pull(*bsp, {7});
  EXPECT_EQ(push(*bsp, 1), gathered(2));
  EXPECT_EQ(bsp->left(2), kNothing) << "7 still computes";
  EXPECT_EQ(push(*bsp, 2), kDropped) << "of a worker that has left";
  EXPECT_EQ(push(*bsp, 7), applied(3));
  pull(*bsp, {0, 1, 7});
  EXPECT_EQ(push(*bsp, 0), gathered(1));
  EXPECT_EQ(push(*bsp, 7), gathered(2));
  EXPECT_EQ(bsp->left(1), applied(2)) << "the one that all waited for";
  EXPECT_THAT(who_may_pull(*bsp, 8), ElementsAre(0, 7));
}

TEST(Consistency, WhoeverComesBackBeforeTheUpdateDoesNotContributeTwice) {
  const auto bsp = make_consistency("bsp", {}, 2);
  pull(*bsp, {0, 1});
  EXPECT_EQ(push(*bsp, 0), gathered(1));
  EXPECT_EQ(bsp->left(0), kNothing);
  bsp->joined(0);
  EXPECT_FALSE(bsp->may_pull(0));
  EXPECT_EQ(push(*bsp, 1), applied(2));
  EXPECT_TRUE(bsp->may_pull(0));
}

TEST(Consistency, TheLastToLeaveAppliesWhatHasBeenGathered) {
  const auto batches = make_consistency("k_batch_async", {.group = 3}, 3);
  pull(*batches, {0, 1});
  EXPECT_EQ(push(*batches, 0), gathered(1));
  EXPECT_EQ(batches->left(0), kNothing);
  EXPECT_EQ(batches->left(2), kNothing);
  EXPECT_EQ(batches->left(1), applied(1));
  batches->joined(5);
  pull(*batches, {5});
  EXPECT_EQ(push(*batches, 5), gathered(1));
}

TEST(Consistency, SspLetsNobodyRunAheadOfTheSlowest) {
  const auto ssp = make_consistency("ssp", {.bound = 2}, 2);
  pull(*ssp, {1});
  for (int clock = 0; clock <= 2; ++clock) {
    pull(*ssp, {0});
    EXPECT_EQ(push(*ssp, 0), applied(1));
  }
  EXPECT_FALSE(ssp->may_pull(0)) << "3 iterations done, the other none";
  EXPECT_EQ(push(*ssp, 1), applied(1));
  EXPECT_TRUE(ssp->may_pull(0));
}

TEST(Consistency, SspWithBoundZeroIsLockStep) {
  const auto ssp = make_consistency("ssp", {.bound = 0}, 3);
  for (int round = 0; round < 3; ++round) {
    pull(*ssp, {2, 0, 1});
    EXPECT_EQ(push(*ssp, 1), applied(1));
    EXPECT_EQ(push(*ssp, 2), applied(1));
    EXPECT_THAT(who_may_pull(*ssp, 3), IsEmpty());
    EXPECT_EQ(push(*ssp, 0), applied(1));
    EXPECT_THAT(who_may_pull(*ssp, 3), ElementsAre(0, 1, 2));
  }
}

TEST(Consistency, SspFreesTheOthersWhenTheSlowestLeavesAndStartsWithTheSlowest) {
  const auto ssp = make_consistency("ssp", {.bound = 1}, 2);
  pull(*ssp, {1});
  for (int clock = 0; clock <= 1; ++clock) {
    pull(*ssp, {0});
    push(*ssp, 0);
  }
  EXPECT_FALSE(ssp->may_pull(0));
  EXPECT_EQ(ssp->left(1), kNothing);
  EXPECT_TRUE(ssp->may_pull(0));
  ssp->joined(1);  // with clock 2, as 0 has: it holds nobody back for the iterations that it missed
  EXPECT_TRUE(ssp->may_pull(0));
  pull(*ssp, {0});
  push(*ssp, 0);
  pull(*ssp, {0});
  push(*ssp, 0);
  EXPECT_THAT(who_may_pull(*ssp, 2), ElementsAre(1));
}

TEST(Consistency, AspAppliesEveryGradientAndNobodyWaits) {
  const auto asp = make_consistency("asp", {}, 2);
  pull(*asp, {1});
  for (int i = 0; i < 5; ++i) {
    pull(*asp, {0});
    EXPECT_EQ(push(*asp, 0), applied(1));
  }
  EXPECT_EQ(push(*asp, 1), applied(1));
  EXPECT_EQ(push(*asp, 1), kDropped) << "no pull went before";
}

TEST(Consistency, KSyncCancelsTheRestOfTheRound) {
  const auto k_sync = make_consistency("k_sync", {.group = 2}, 4);
  pull(*k_sync, {0, 1, 2, 3});
  EXPECT_EQ(push(*k_sync, 3), gathered(1));
  EXPECT_FALSE(k_sync->may_pull(3));
  EXPECT_THAT(who_is_cancelled(*k_sync, 4), IsEmpty());
  EXPECT_EQ(push(*k_sync, 1), applied(2));
  EXPECT_THAT(who_is_cancelled(*k_sync, 4), ElementsAre(0, 2));
  EXPECT_THAT(who_may_pull(*k_sync, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(push(*k_sync, 0), kDropped) << "it had not heard";
  EXPECT_THAT(who_is_cancelled(*k_sync, 4), ElementsAre(2));
  pull(*k_sync, {0, 2});  // 2 has, and leaves off
  EXPECT_THAT(who_is_cancelled(*k_sync, 4), IsEmpty());
  EXPECT_EQ(push(*k_sync, 2), gathered(1));
  EXPECT_EQ(push(*k_sync, 0), applied(2));
}

TEST(Consistency, KSyncMakesDoWithThoseThatAreLeft) {
  const auto k_sync = make_consistency("k_sync", {.group = 3}, 3);
  pull(*k_sync, {0, 1, 2});
  push(*k_sync, 0);
  EXPECT_EQ(k_sync->left(2), kNothing);
  EXPECT_EQ(push(*k_sync, 1), applied(2));
}

TEST(Consistency, KBatchSyncTakesSeveralOfAFastWorker) {
  const auto batches = make_consistency("k_batch_sync", {.group = 3}, 3);
  pull(*batches, {0, 1, 2});
  EXPECT_EQ(push(*batches, 0), gathered(1));
  pull(*batches, {0});
  EXPECT_EQ(push(*batches, 0), gathered(2));
  pull(*batches, {0});
  EXPECT_EQ(push(*batches, 2), applied(3));
  EXPECT_THAT(who_is_cancelled(*batches, 3), ElementsAre(0, 1));
  EXPECT_EQ(push(*batches, 1), kDropped);
}

TEST(Consistency, KAsyncWaitsForDistinctWorkersAndCancelsNobody) {
  const auto k_async = make_consistency("k_async", {.group = 2}, 3);
  pull(*k_async, {0, 1, 2});
  EXPECT_EQ(push(*k_async, 0), gathered(1));
  EXPECT_FALSE(k_async->may_pull(0));
  EXPECT_EQ(push(*k_async, 1), applied(2));
  EXPECT_THAT(who_is_cancelled(*k_async, 3), IsEmpty());
  EXPECT_THAT(who_may_pull(*k_async, 3), ElementsAre(0, 1)) << "2 still computes";
  pull(*k_async, {0});
  EXPECT_EQ(push(*k_async, 2), gathered(1)) << "an old version's gradient counts";
  EXPECT_EQ(push(*k_async, 0), applied(2));
}

TEST(Consistency, KBatchAsyncNeitherCancelsNorWaits) {
  const auto batches = make_consistency("k_batch_async", {.group = 2}, 3);
  pull(*batches, {0, 1, 2});
  EXPECT_EQ(push(*batches, 0), gathered(1));
  pull(*batches, {0});
  EXPECT_EQ(push(*batches, 0), applied(2));
  EXPECT_THAT(who_is_cancelled(*batches, 3), IsEmpty());
  EXPECT_EQ(push(*batches, 1), gathered(1));
}

/// Every worker computes and pushes with this loss, until as many updates are made; the sizes of their groups.
std::set<int> groups_of(Consistency& consistency, int workers, double loss, int updates) {
  std::set<int> groups;
  for (int made = 0; made < updates;) {
    for (int worker = 0; worker < workers; ++worker) {
      if (!consistency.may_pull(worker)) continue;
      consistency.pulled(worker);
      if (const Admission admission = push(consistency, worker, loss); admission.fate == Admission::Fate::applied) {
        groups.insert(admission.gathered);
        ++made;
      }
    }
  }
  return groups;
}

TEST(Consistency, AdasyncRaisesKAsTheLossFallsAndNeverLowersIt) {
  const auto adasync = make_consistency("adasync", {.group = 2, .loss_exponent = 0.5}, 8);
  EXPECT_THAT(groups_of(*adasync, 8, 4.0, 200), ElementsAre(2));
  groups_of(*adasync, 8, 1.0, 500);  // √(4/1) = 2
  EXPECT_THAT(groups_of(*adasync, 8, 1.0, 20), ElementsAre(4));
  groups_of(*adasync, 8, 9.0, 500);
  EXPECT_THAT(groups_of(*adasync, 8, kNoLoss, 20), ElementsAre(4)) << "never falls";
  groups_of(*adasync, 8, 1e-9, 500);
  EXPECT_THAT(groups_of(*adasync, 8, 1e-9, 20), ElementsAre(8)) << "never above the workers";
}

TEST(Consistency, AdasyncIgnoresLossesThatSayNothing) {
  for (const double loss : {kNoLoss, std::numeric_limits<double>::infinity(), 0.0, -1.0}) {
    const auto adasync = make_consistency("adasync", {.group = 3}, 6);
    EXPECT_THAT(groups_of(*adasync, 6, loss, 300), ElementsAre(3)) << loss;
  }
}

std::string refusal(const std::string& name, const ConsistencyConfig& config, int workers) {
  try {
    make_consistency(name, config, workers);
  } catch (const ConfigError& problem) {
    return problem.what();
  }
  return "accepted";
}

TEST(Consistency, RefusesWhatCannotBe) {
  for (const char* name : {"k_sync", "k_batch_sync", "k_async", "k_batch_async", "adasync"}) {
    EXPECT_THAT(refusal(name, {.group = 5}, 4), HasSubstr("ps.group=5, but there are 4 workers; use 1 to 4")) << name;
    EXPECT_THAT(refusal(name, {.group = -1}, 1), HasSubstr("there is 1 worker")) << name;
    EXPECT_EQ(refusal(name, {.group = 4}, 4), "accepted") << name;
  }
  EXPECT_THAT(refusal("ssp", {.bound = -1}, 4), HasSubstr("at least 0"));
  EXPECT_THAT(refusal("ksync", {}, 4), HasSubstr("did you mean 'k_sync'"));
  EXPECT_THAT(refusal("asp", {}, 0), HasSubstr("at least 1 worker"));
}

TEST(Consistency, GroupZeroIsHalfOfTheWorkersAtLeastOne) {
  for (const auto& [workers, half] : std::map<int, int>{{1, 1}, {2, 1}, {5, 2}, {8, 4}}) {
    const auto k_sync = make_consistency("k_sync", {}, workers);
    for (int worker = 0; worker < workers; ++worker) k_sync->pulled(worker);
    for (int worker = 0; worker + 1 < half; ++worker) EXPECT_EQ(push(*k_sync, worker), gathered(worker + 1));
    EXPECT_EQ(push(*k_sync, half - 1), applied(half));
  }
}

TEST(Consistency, DescribesItsSettings) {
  ConsistencyConfig settings;
  Config config;
  config.bind("ps", "", settings);
  config.set("ps.staleness=0");
  config.set("ps.group=7");
  config.set("ps.loss_exponent=1");
  EXPECT_EQ(settings.bound, 0);
  EXPECT_EQ(settings.group, 7);
  EXPECT_EQ(settings.loss_exponent, 1);
  EXPECT_THROW(config.set("ps.staleness=-1"), ConfigError);
  EXPECT_THROW(config.set("ps.group=-1"), ConfigError);
}

TEST(Consistency, WhoMayNotPullDoesNot) {
  for (const auto& row : consistencies()) {
    const auto consistency = make_consistency(std::string(row.key), {}, 2);
    EXPECT_FALSE(consistency->may_pull(2)) << row.key << ": nobody of that number";
    EXPECT_THROW(consistency->pulled(2), InternalError) << row.key;
    consistency->pulled(0);
    EXPECT_FALSE(consistency->may_pull(0)) << row.key << ": it computes";
    consistency->joined(0);
    EXPECT_TRUE(consistency->may_pull(0)) << row.key << ": it begins anew";
    EXPECT_EQ(push(*consistency, 0), kDropped) << row.key;
  }
}

}  // namespace
}  // namespace paceline::ps
