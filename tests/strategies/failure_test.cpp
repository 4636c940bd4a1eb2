// A peer that fails in the middle of a meeting: messages that are still under way are given up before their memory goes.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "paceline/base/error.h"
#include "workers.h"

namespace paceline::strategies {
namespace {

/// Rank `rank` of four whose rank 0 dies: what comes from it fails, and other messages stay under way.
class AmongTheDying final : public comm::Communicator {
 public:
  explicit AmongTheDying(int rank, std::shared_ptr<std::atomic<int>> in_flight) : rank_(rank), in_flight_(std::move(in_flight)) {}

  int rank() const override { return rank_; }
  int size() const override { return 4; }
  comm::Topology topology() const override { return {}; }
  std::string engine() const override { return "local"; }
  comm::Memory allocate(std::int64_t bytes) override { return {std::calloc(static_cast<std::size_t>(bytes), 1), std::free}; }
  std::unique_ptr<comm::Communicator> split(int, int) override { return std::make_unique<AmongTheDying>(rank_, in_flight_); }

  comm::Work start(const comm::Operation& operation) override {
    return comm::Work(std::make_shared<Message>(operation.kind == comm::Operation::Kind::receive && operation.peer == 0, in_flight_));
  }
  void run(const comm::Operation& operation) override {
    if (operation.kind == comm::Operation::Kind::receive) throw PeerError(operation.peer, "receive", 1, "rank 0 died");
  }

 private:
  struct Message final : comm::Work::State {
    Message(bool failed, std::shared_ptr<std::atomic<int>> counter) : failed_(failed), counter_(std::move(counter)) {
      *counter_ += !failed_;
    }
    bool done() override { return failed_; }
    void wait() override { throw PeerError(0, "receive", 1, "rank 0 died"); }
    void abandon() override {
      if (!failed_) --*counter_;
      failed_ = true;
    }

   private:
    bool failed_;
    std::shared_ptr<std::atomic<int>> counter_;
  };

  int rank_;
  std::shared_ptr<std::atomic<int>> in_flight_;
};

class Meeting : public testing::TestWithParam<std::string> {};

TEST_P(Meeting, GivesUpWhatIsUnderWayWhenItFails) {
  Settings settings;
  settings.strategy.name = GetParam();
  const auto in_flight = std::make_shared<std::atomic<int>>(0);
  {
    AmongTheDying comm(/*rank=*/1, in_flight);
    TestWorker worker(comm, settings);
    if (GetParam() != "ad_psgd") {  // there a thread answers, from the beginning
      EXPECT_THROW(worker.train(1, 1), PeerError);
    }
  }
  EXPECT_EQ(*in_flight, 0);
}

INSTANTIATE_TEST_SUITE_P(Strategies, Meeting, testing::Values("gossip", "sgp", "ad_psgd"), [](const auto& item) { return item.param; });

}  // namespace
}  // namespace paceline::strategies
