// Gossip SGD: data_parallel/meetings/gossip.cpp.
#include "paceline/strategies/registry.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {

std::unique_ptr<step::Strategy> make_gossip(const StrategySettings& config, const step::Context& context) {
  return std::make_unique<Replicas>(config, context, data_parallel::make_gossip_meeting(messages_setup(config, context)));
}

std::vector<schedule::Program> gossip_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  return replicas_program(model, settings, write_swap);
}

}  // namespace paceline::strategies
