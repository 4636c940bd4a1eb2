// The step of a parameter server's worker, for any rule and consistency (central/): it pulls the parameters, computes the gradient of its
// minibatch and pushes it. The consistency decides who waits for whom, and the server makes the update.
#include "paceline/strategies/served.h"

#include "paceline/base/error.h"
#include "paceline/schedule/program_writer.h"

namespace paceline::strategies {

std::vector<schedule::Program> served_step(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings,
                                           const ServedStep& step) {
  if (settings.pipeline > 1 || settings.tensor > 1 || settings.zero > 0)
    throw ConfigError("workers of a parameter server train whole models; use parallel.pipeline=1, parallel.tensor=1 and parallel.zero=0");
  using schedule::Action;
  schedule::ProgramWriter writer(model, settings, 0);
  const std::int64_t elements = writer.elements();
  if (step.pulls)
    writer.communicate(Action::Lane::compute, Action::Exchange::pull, Action::Axis::server, elements,
                       static_cast<double>(settings.storage_bytes));
  writer.passes();
  if (step.departs) writer.update_all(elements);
  if (!step.pushes) return {writer.take()};
  if (settings.compressed != schedule::CompressedTraffic::none) writer.compute(Action::Lane::compute, Action::Work::encode, elements);
  writer.communicate(Action::Lane::compute, Action::Exchange::push, Action::Axis::server, elements, settings.wire_bytes);
  return {writer.take()};
}

std::vector<schedule::Program> served_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  return served_step(model, settings, {});
}

}  // namespace paceline::strategies
