// Elastic averaging SGD: data_parallel/meetings/elastic.cpp.
#include "paceline/strategies/registry.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {

std::unique_ptr<step::Strategy> make_easgd(const StrategySettings& config, const step::Context& context) {
  return std::make_unique<Replicas>(
      config, context,
      data_parallel::make_elastic_meeting(meeting_setup(config, context), {.period = period_of(config), .elasticity = config.elasticity}));
}

std::vector<schedule::Program> easgd_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  return replicas_program(model, settings, write_average);
}

}  // namespace paceline::strategies
