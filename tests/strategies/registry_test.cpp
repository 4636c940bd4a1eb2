// What the table of strategies says of its rows.
#include "paceline/strategies/registry.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"

namespace paceline::strategies {
namespace {

TEST(StrategyTable, WorkersWithAServerAreAsynchronousAsItsConsistencySays) {
  for (const auto& [consistency, asynchronous] : {std::pair{"bsp", false}, {"asp", true}, {"ssp", true}, {"k_sync", true}}) {
    ps::PsConfig ps;
    ps.consistency = consistency;
    EXPECT_EQ(is_asynchronous("ps", ps), asynchronous) << consistency;
    EXPECT_FALSE(is_asynchronous("ssgd", ps)) << "whatever [ps] says beside it";
    EXPECT_TRUE(is_asynchronous("asgd", ps));
  }
}

TEST(StrategyTable, WorkersWithoutAServerAreAsynchronousAsTheirRowSays) {
  for (const auto& [key, help, kind] : strategies()) {
    if (kind.centralised()) continue;
    EXPECT_EQ(is_asynchronous(std::string(key), {}), key == "ad_psgd") << key;
  }
}

TEST(StrategyTable, WhoseWorkersAreNeverAheadOfAnotherTrainAsOneDoes) {
  for (const auto& [key, help, kind] : strategies()) {
    const bool always = kind.centralised() ? !kind.consistency.empty() && ps::consistency_kind(std::string(kind.consistency)).synchronous
                                           : kind.together && !kind.alone;
    EXPECT_EQ(kind.synchronous_with == "", always) << key;
    EXPECT_FALSE(kind.synchronous_with && kind.asynchronous) << key;
  }
}

TEST(StrategyTable, AutoIsARowForOneWorkerOrForSeveral) {
  for (const char* name : {kAuto, kPlan}) {
    EXPECT_TRUE(is_alone(resolve(name, 1)));
    EXPECT_FALSE(is_alone(resolve(name, 2)));
    EXPECT_TRUE(has_buckets(resolve(name, 2)));
    EXPECT_FALSE(is_alone(name)) << "it depends on the workers";
    EXPECT_TRUE(makes_steps_together(name));
  }
  EXPECT_EQ(resolve("gossip", 2), "gossip");
  EXPECT_THROW(has_buckets("gossips"), ConfigError);
}

}  // namespace
}  // namespace paceline::strategies
