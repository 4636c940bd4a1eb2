// SparkNet (Moritz et al., 2016): a master collects the replicas every `period` steps, averages them and sends the mean back.
//   every τ steps: master: w ← (1/M) Σ_j w_j; all: w_i ← w
// The same mean as local_sgd, in two operations: reduce to worker 0, broadcast from it.
#include "paceline/strategies/registry.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {
namespace {

class SparkNet final : public data_parallel::Meeting {
 public:
  SparkNet(const data_parallel::MeetingSetup& setup, std::int64_t period) : Meeting(setup), period_(period) {}

  std::int64_t meet(const step::Point& point) override {
    if (point.step % period_ != 0) return 0;
    const comm::Buffer replica = parameters();
    const comm::Operation collect = comm::reduce(replica, {.op = comm::ReduceOp::mean}), spread = comm::broadcast(replica);
    comm().run(collect);
    comm().run(spread);
    return comm().bytes_sent(collect) + comm().bytes_sent(spread);
  }

 private:
  std::int64_t period_;
};

void write_sparknet(schedule::ProgramWriter& writer, const schedule::ProgramSettings& settings, std::int64_t elements) {
  for (const auto exchange : {schedule::Action::Exchange::reduce, schedule::Action::Exchange::broadcast})
    writer.communicate(schedule::Action::Lane::compute, exchange, schedule::Action::Axis::data, elements,
                       static_cast<double>(settings.storage_bytes));
}

}  // namespace

std::unique_ptr<step::Strategy> make_sparknet(const StrategySettings& config, const step::Context& context) {
  return std::make_unique<Replicas>(config, context, std::make_unique<SparkNet>(meeting_setup(config, context), period_of(config)));
}

std::vector<schedule::Program> sparknet_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  return replicas_program(model, settings, write_sparknet);
}

}  // namespace paceline::strategies
