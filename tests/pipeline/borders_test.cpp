// What has been sent across a border and not been taken: who waits for it, and who does not.
#include "paceline/pipeline/borders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "ranks.h"

namespace paceline::pipeline {
namespace {

/// Counts how often it is read, and goes on by a second each time.
class CountingClock final : public Clock {
 public:
  Nanoseconds now() const override {
    if (++reads_ == calls_at_) call_();
    return std::chrono::seconds(reads_);
  }
  int reads() const { return reads_; }
  void call_at(int read, std::function<void()> call) { calls_at_ = read, call_ = std::move(call); }

 private:
  mutable int reads_ = 0;
  int calls_at_ = -1;
  std::function<void()> call_;
};

constexpr int kPatience = 30;  // reads; a border that waits for nobody makes none

/// The two ends of a border. What they exchange is more than a mailbox of the local engine holds, which takes small messages at once.
struct Ends {
  std::vector<std::unique_ptr<comm::Communicator>> group = comm::local_group(2, {});
  CountingClock clock;
  at::Tensor tensor = at::arange(3 << 18, at::kFloat).reshape({3, 1 << 18});

  std::unique_ptr<Borders> borders(int rank) { return std::make_unique<Borders>(*group[static_cast<std::size_t>(rank)], at::kCPU, clock); }
  void send(Borders& sender) { sender.send({.message = {.peer = 1}, .samples = 3}, {tensor}); }
  at::Tensor take(Borders& receiver) {
    receiver.expect({{.message = {.peer = 0}, .samples = 3}});
    return receiver.take().at(0);
  }
};

TEST(Borders, WaitUntilTheOtherSideHasTakenWhatWasSent) {
  Ends ends;
  const auto receiver = ends.borders(1);
  auto sender = ends.borders(0);
  ends.send(*sender);
  at::Tensor taken;
  ends.clock.call_at(5, [&] { taken = ends.take(*receiver); });
  sender.reset();
  ASSERT_TRUE(taken.defined());
  EXPECT_TRUE(at::equal(taken, ends.tensor));
  EXPECT_LT(ends.clock.reads(), kPatience);
}

TEST(Borders, DoNotWaitForever) {
  Ends ends;
  auto sender = ends.borders(0);
  ends.send(*sender);
  sender.reset();
  EXPECT_GE(ends.clock.reads(), kPatience);
}

TEST(Borders, WaitForNobodyAfterAnError) {
  Ends ends;
  try {
    const auto sender = ends.borders(0);
    ends.send(*sender);
    throw Error("another part of the step broke");
  } catch (const Error&) {
    EXPECT_EQ(ends.clock.reads(), 0);
  }
  const auto sender = ends.borders(0);
  ends.send(*sender);
  sender->abandon();
  EXPECT_EQ(ends.clock.reads(), 0);
}

/// How often the last stage reads the clock while its strategy is destroyed, if the first never takes the gradients of its only pass.
int reads_of_leaving(bool abandons) {
  const auto clock = std::make_shared<CountingClock>();
  const Trial trial{.graph = network("mlp"), .mesh = {.data = 1, .pipeline = 2}, .micro_batches = 1, .batch = 1 << 15, .clock = clock};
  std::promise<void> left;
  int reads = 0;
  const auto problems = with_ranks(trial, [&](Rank& rank) {
    const step::Batch batch = rank.batch(1);
    if (rank.mesh().pipeline().rank() == 0) {
      const SteadyClock steady;
      Borders border(rank.mesh().pipeline(), at::kCPU, steady);
      const nn::Tensors outputs = rank.module().run(rank.context().pipeline.stages.at(0), {batch.inputs}, {}, nullptr);
      border.send({.message = {.peer = 1}, .samples = batch.inputs.size(0)}, outputs);
      left.get_future().wait();
    } else {
      rank.step(1);
      if (abandons) rank.abandon();
      const int before = clock->reads();
      rank.use_loss(std::make_shared<nn::SoftmaxLoss>());
      reads = clock->reads() - before;
      left.set_value();
    }
  });
  for (const std::exception_ptr& problem : problems)
    if (problem) std::rethrow_exception(problem);
  return reads;
}

TEST(Borders, OfAStrategyThatIsAbandonedWaitForNobody) {
  EXPECT_GE(reads_of_leaving(/*abandons=*/false), kPatience);
  EXPECT_LT(reads_of_leaving(/*abandons=*/true), kPatience);
}

}  // namespace
}  // namespace paceline::pipeline
