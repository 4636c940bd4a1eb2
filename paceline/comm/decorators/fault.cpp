#include <atomic>

#include <fmt/format.h>

#include "paceline/comm/decorators/decorators.h"

namespace paceline::comm {
namespace {

/// How many operations a rank may still start, in all its groups together.
struct FaultPlan {
  int rank = 0;
  std::int64_t fails_at = 0;
  std::atomic<std::int64_t> operations = 0;
};

class Fault final : public Decorator {
 public:
  Fault(std::unique_ptr<Communicator> communicator, std::shared_ptr<FaultPlan> plan)
      : Decorator(std::move(communicator)), plan_(std::move(plan)) {}

  Work start(const Operation& operation) override {
    count(operation);
    return inner().start(operation);
  }
  void run(const Operation& operation) override {
    count(operation);
    inner().run(operation);
  }
  std::unique_ptr<Communicator> split(int color, int key) override { return std::make_unique<Fault>(inner().split(color, key), plan_); }

 private:
  void count(const Operation& operation) {
    if (++plan_->operations == plan_->fails_at)
      throw Error(
          fmt::format("rank {} fails in {}, its operation {}, as comm.fail_at says", plan_->rank, describe(operation), plan_->fails_at));
  }

  std::shared_ptr<FaultPlan> plan_;
};

}  // namespace

std::unique_ptr<Communicator> fault(std::unique_ptr<Communicator> inner, int rank, std::int64_t operation) {
  if (inner->rank() != rank) return inner;
  auto plan = std::make_shared<FaultPlan>();
  plan->rank = rank, plan->fails_at = operation;
  return std::make_unique<Fault>(std::move(inner), std::move(plan));
}

}  // namespace paceline::comm
