// Local SGD and post-local SGD: data_parallel/meetings/local_sgd.cpp.
#include "paceline/strategies/registry.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {

std::unique_ptr<step::Strategy> make_local_sgd(const StrategySettings& config, const step::Context& context) {
  return std::make_unique<Replicas>(
      config, context,
      data_parallel::make_local_sgd_meeting(meeting_setup(config, context),
                                            {.period = period_of(config), .post_local_epoch = config.post_local_epoch}));
}

std::vector<schedule::Program> local_sgd_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  return replicas_program(model, settings, write_average);
}

}  // namespace paceline::strategies
