// The table of executors, and what [ps] answers about the one that it names.
#include "paceline/ps/executors.h"

#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/ps/config.h"

namespace paceline::ps {
namespace {

TEST(Executors, EveryOneIsThreadsOrProcessesOrAVirtualClock) {
  for (const Executor& row : executors()) {
    PsConfig config;
    config.executor = row.key;
    EXPECT_EQ(config.by_threads() + config.by_processes() + config.by_virtual_clock(), 1) << row.key;
    EXPECT_FALSE(config.leaves_executor_open()) << row.key;
    for (const bool gpu : {false, true}) EXPECT_EQ(config.executor_on(gpu).key, row.key);
  }
}

TEST(Executors, AutoIsUpToTheDevice) {
  const PsConfig config;
  EXPECT_TRUE(config.leaves_executor_open());
  EXPECT_FALSE(config.by_threads() || config.by_processes() || config.by_virtual_clock());
  EXPECT_TRUE(config.executor_on(/*gpu=*/false).make.threads());
  EXPECT_TRUE(config.executor_on(/*gpu=*/true).make.virtual_clock);
}

TEST(Executors, AnotherNameIsRefused) {
  PsConfig config;
  config.executor = "thread";
  EXPECT_THROW(config.by_processes(), ConfigError);
}

}  // namespace
}  // namespace paceline::ps
