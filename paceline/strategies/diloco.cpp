// DiLoCo: data_parallel/meetings/diloco.cpp.
#include "paceline/strategies/registry.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {

std::unique_ptr<step::Strategy> make_diloco(const StrategySettings& config, const step::Context& context) {
  return std::make_unique<Replicas>(
      config, context,
      data_parallel::make_diloco_meeting(
          meeting_setup(config, context),
          {.period = period_of(config), .outer_rate = config.outer_rate, .outer_momentum = config.outer_momentum}));
}

std::vector<schedule::Program> diloco_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  return replicas_program(model, settings, write_average);
}

}  // namespace paceline::strategies
