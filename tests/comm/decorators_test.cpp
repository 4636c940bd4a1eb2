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

}  // namespace
}  // namespace paceline::comm
