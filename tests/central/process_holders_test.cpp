// Whom server 0 asks about a checkpoint, and what it gets of workers that answer, leave, or are silent.
#include "paceline/central/process_holders.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "tests/central/hasty_clock.h"
#include "tests/message_of.h"

namespace paceline::central {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;

class ProcessHoldersTest : public testing::Test {
 protected:
  ProcessHolders::Leader leader() {
    return {.range = {0, 10},
            .servers = 1,
            .workers = 3,
            .workers_hold = true,
            .bring_up_to_date = [this] { ++brought_up_to_date_; },
            .observer = []() -> ps::RemoteClient& { throw InternalError("there is no other server"); },
            .workers_here = [this] { return here_; },
            .wake_workers = [this] { ++woken_; },
            .clock = clock_,
            .patience = std::chrono::seconds(20)};
  }

  std::vector<int> here_ = {2, 0};
  int brought_up_to_date_ = 0, woken_ = 0;
  HastyClock clock_;
  WorkerOrders orders_;
  ProcessHolders holders_{leader(), orders_};
};

TEST_F(ProcessHoldersTest, AWorkerFindsItsOrderAndItsAnswerIsHeard) {
  EXPECT_THAT(holders_.roll_call(), ElementsAre("worker 0", "worker 2"));
  EXPECT_EQ(brought_up_to_date_, 1);
  holders_.give(std::vector<std::string>{"", "report"});
  EXPECT_GT(woken_, 0) << "workers that wait for work";
  EXPECT_FALSE(orders_.any(0));
  EXPECT_EQ(orders_.order(2), "report");
  EXPECT_THAT(holders_.answers(/*wait=*/false), ElementsAre(std::nullopt, std::nullopt));
  orders_.answered(0, "nobody has asked");
  orders_.answered(2, "it is so");
  EXPECT_THAT(holders_.answers(/*wait=*/true), ElementsAre(std::nullopt, Optional(std::string("it is so"))));
  EXPECT_FALSE(orders_.any(2));
}

TEST_F(ProcessHoldersTest, AnAnswerToAnEarlierOrderIsNone) {
  holders_.roll_call();
  holders_.give(std::vector<std::string>{"first", ""});
  orders_.answered(0, "first answer");
  holders_.give(std::vector<std::string>{"second", ""});
  EXPECT_EQ(holders_.answers(/*wait=*/false)[0], std::nullopt);
}

TEST_F(ProcessHoldersTest, WhoeverLeavesIsNotWaitedFor) {
  holders_.roll_call();
  holders_.give(std::vector<std::string>{"write", "write"});
  here_ = {2};
  orders_.answered(2, "done");
  EXPECT_THAT(holders_.answers(/*wait=*/true), ElementsAre(Optional(std::string()), Optional(std::string("done"))));
}

TEST_F(ProcessHoldersTest, WhoeverIsSilentForTooLongIsNamed) {
  holders_.roll_call();
  holders_.give(std::vector<std::string>{"write", "write"});
  orders_.answered(0, "done");
  EXPECT_THAT(message_of<PeerError>([&] { holders_.answers(/*wait=*/true); }), testing::AllOf(HasSubstr("worker 2"), HasSubstr("20.0 s")));
}

TEST_F(ProcessHoldersTest, WhatAbsentWorkersHadStays) {
  const std::vector<step::NamedTensor> last = {
      {"ps.worker.0.residual", at::zeros(3)}, {"ps.worker.1.residual", at::ones(3)}, {"ps.0.kept", at::ones(1)}};
  holders_.remember([&] { return last; });
  holders_.roll_call();
  std::vector<step::NamedTensor> state;
  holders_.add_absent_workers(state);
  ASSERT_EQ(state.size(), 1u);
  EXPECT_EQ(state[0].name, "ps.worker.1.residual");
  EXPECT_TRUE(state[0].copied) << "it is a mapped file, not memory of training";
}

TEST_F(ProcessHoldersTest, ALastCheckpointThatCannotBeReadEndsNothing) {
  holders_.remember([]() -> std::vector<step::NamedTensor> { throw DataError("step-1", "is damaged"); });
  holders_.roll_call();
  std::vector<step::NamedTensor> state;
  testing::internal::CaptureStderr();
  holders_.add_absent_workers(state);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("step-1"));
  EXPECT_TRUE(state.empty());
}

}  // namespace
}  // namespace paceline::central
