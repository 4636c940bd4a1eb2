// SparkNet (Moritz et al., 2016): a master collects the replicas every `period` steps, averages them and sends the mean back.
//   every τ steps: master: w ← (1/M) Σ_j w_j; all: w_i ← w
// The same mean as local_sgd, over a star: worker 0 carries all the traffic.
#include "paceline/data_parallel/buffer.h"
#include "paceline/strategies/all.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {
namespace {

class SparkNet final : public Replicas {
 public:
  using Replicas::Replicas;

 private:
  void meet(const step::Point& point) override {
    if (point.step % config().period != 0) return;
    const comm::Buffer replica = data_parallel::buffer_of(parameters(), 0, parameters().numel());
    context().comm.run(comm::reduce(replica, {.op = comm::ReduceOp::mean}));
    context().comm.run(comm::broadcast(replica));
    const int others = context().workers() - 1;
    count_bytes(replica.bytes() * (context().rank() == 0 ? others : 1));
  }
};

}  // namespace

std::unique_ptr<step::Strategy> make_sparknet(const StrategyConfig& config, const step::Context& context) {
  return std::make_unique<SparkNet>(config, context);
}

}  // namespace paceline::strategies
