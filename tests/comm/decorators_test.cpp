// Decorators over messages that overtake one another, over ranks that call different things, and over groups within a group.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <numeric>

#include "ranks.h"

namespace paceline::comm {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

Options by(std::string algorithm) { return {.op = ReduceOp::sum, .root = 0, .algorithm = std::move(algorithm), .deadline = {}}; }

TEST(Shape, KeepsTheOrderOfMessagesWhateverTheJitter) {
  CommConfig config;
  config.link_jitter_us = 50000;
  constexpr int kMessages = 20;
  const auto problems = play(2, config, [](Communicator& comm) {
    std::vector<std::int64_t> numbers(kMessages), expected(kMessages);
    std::iota(expected.begin(), expected.end(), 0);
    if (comm.rank() == 0) numbers = expected;
    std::vector<Work> works;
    for (std::int64_t& number : numbers)
      works.push_back(comm.start(comm.rank() == 0 ? send(Buffer(&number, 1), 1) : receive(Buffer(&number, 1), 0)));
    for (const Work& work : works) work.wait();
    EXPECT_EQ(numbers, expected);
  });
  EXPECT_THAT(problems, Each(""));
}

TEST(Check, ComparesAlgorithms) {
  CommConfig config;
  config.check = true;
  const auto problems = play(2, config, [](Communicator& comm) {
    std::vector<float> values(100);
    comm.run(allreduce(values, by("ring")));
    comm.run(allreduce(
        values, {.op = ReduceOp::sum, .root = 0, .algorithm = comm.rank() == 0 ? "ring" : "tree", .deadline = std::chrono::seconds(2)}));
  });
  EXPECT_THAT(problems, Each(AllOf(HasSubstr("rank 0 called allreduce of 100 fp32 (sum) by ring"),
                                   HasSubstr("rank 1 called allreduce of 100 fp32 (sum) by tree"))));
}

TEST(Check, ComparesSplits) {
  CommConfig config;
  config.check = true;
  config.deadline_s = 2;
  const auto problems = play(3, config, [](Communicator& comm) {
    std::vector<float> values(100);
    if (comm.rank() == 1) comm.split(0, 0);
    else comm.run(allreduce(values));
  });
  EXPECT_THAT(problems, Each(AllOf(HasSubstr("rank 0 called allreduce of 100 fp32"), HasSubstr("rank 1 called split"))));
}

TEST(Fault, CountsWhatARankDoesInItsGroupsToo) {
  CommConfig config;
  config.fail_at = {1, 3};
  const auto problems = play(2, config, [](Communicator& comm) {
    std::vector<float> values(10);
    comm.run(allreduce(values));
    const auto group = comm.split(0, -comm.rank());
    for (int i = 0; i < 5; ++i) group->run(allreduce(values));
  });
  EXPECT_THAT(problems[1], AllOf(HasSubstr("rank 1 fails"), HasSubstr("its operation 3")));
}

TEST(Fault, RefusesWhatCannotFail) {
  const auto refusal = [](std::vector<std::int64_t> fail_at) -> std::string {
    CommConfig config;
    config.fail_at = std::move(fail_at);
    try {
      local_group(2, config);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({1, 1}), "accepted");
  for (const auto& wrong : std::vector<std::vector<std::int64_t>>{{1}, {1, 2, 3}, {2, 1}, {-1, 1}, {1, 0}, {7, 3}})
    EXPECT_THAT(refusal(wrong), HasSubstr("comm.fail_at")) << testing::PrintToString(wrong);
}

// The group counts its ranks backwards; the journal speaks of them by the names that they have in the run.
TEST(Record, KnowsTheRanksOfAGroupByTheirNamesInTheRun) {
  std::latch over(1);
  const auto problems = play(3, {}, [&](Communicator& comm) {
    std::vector<float> values(64);
    const auto group = comm.split(comm.rank() == 0, -comm.rank());
    group->run(broadcast(values));
    if (comm.rank() == 0) return;
    if (comm.rank() == 2) return over.wait();
    try {
      group->run(allreduce(values, {.op = ReduceOp::sum, .root = 0, .algorithm = {}, .deadline = std::chrono::seconds(1)}));
      ADD_FAILURE() << "nobody noticed";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(), HasSubstr("last known operation of rank 2: broadcast of 64 fp32 from rank 0"));
    }
    over.count_down();
  });
  EXPECT_THAT(problems, Each(""));
}

}  // namespace
}  // namespace paceline::comm
