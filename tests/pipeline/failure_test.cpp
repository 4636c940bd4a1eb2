// A rank that fails in the middle of a pipeline: every other ends, and names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "ranks.h"

namespace paceline::pipeline {
namespace {

/// The loss of a rank that fails in its third micro-batch of the second step.
class Breaking final : public nn::Loss {
 public:
  nn::Scored score(const at::Tensor& output, const at::Tensor& targets, double scale) const override {
    if (++calls_ == 7) throw Error("the loss broke");
    return loss_.score(output, targets, scale);
  }
  at::Tensor evaluate(const at::Tensor& output, const at::Tensor& targets) const override { return loss_.evaluate(output, targets); }

 private:
  nn::SoftmaxLoss loss_;
  mutable int calls_ = 0;
};

/// What each rank threw, as text, and whom it blames; −1: nobody.
struct End {
  std::string text;
  int culprit = -1;
};

End end_of(const std::exception_ptr& problem) {
  if (!problem) return {};
  try {
    std::rethrow_exception(problem);
  } catch (const PeerError& error) {
    return {error.what(), error.rank()};
  } catch (const std::exception& error) {
    return {error.what(), -1};
  }
}

class Broken : public testing::TestWithParam<std::string> {};

TEST_P(Broken, EveryOtherRankEndsAndNamesTheOneThatFailed) {
  const std::string name = GetParam() == "1f1b" ? "gpt_tied" : "gpt";
  const Trial trial{.graph = network(name), .mesh = {.data = 2, .pipeline = 2}, .schedule = GetParam(), .deadline_s = 20};
  const int culprit = 2;  // data 0 of the last stage
  const auto problems = with_ranks(trial, [&](Rank& rank) {
    if (rank.mesh().everyone().rank() == culprit) rank.use_loss(std::make_shared<Breaking>());
    else rank.use_loss(std::make_shared<nn::SoftmaxLoss>());
    for (std::int64_t step = 1; step <= 4; ++step) rank.step(step);
  });
  ASSERT_EQ(problems.size(), 4U);
  for (std::size_t rank = 0; rank < problems.size(); ++rank) {
    const End end = end_of(problems[rank]);
    if (static_cast<int>(rank) == culprit) EXPECT_EQ(end.text, "the loss broke");
    else EXPECT_EQ(end.culprit, culprit) << "rank " << rank << ": " << end.text;
  }
}

std::vector<std::string> schedules() {
  std::vector<std::string> keys;
  for (const auto& row : schedule::pipelines()) keys.emplace_back(row.key);
  return keys;
}
INSTANTIATE_TEST_SUITE_P(Schedules, Broken, testing::ValuesIn(schedules()), [](const auto& item) { return "of_" + item.param; });

}  // namespace
}  // namespace paceline::pipeline
