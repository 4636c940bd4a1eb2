// Step programs of data parallelism without LibTorch, as strategies/allreduce.cpp states them where gradients leave in one piece: the
// planner and the calibration take any.
#pragma once

#include "paceline/schedule/program_writer.h"

namespace paceline::perf {

inline std::vector<schedule::Program> plain_programs(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  using schedule::Action;
  std::vector<schedule::Program> programs;
  for (int rank = 0; rank < settings.pipeline; ++rank) {
    schedule::ProgramWriter writer(model, settings, rank);
    writer.passes();
    if (settings.data > 1)
      writer.communicate(Action::Lane::compute, settings.zero > 0 ? Action::Exchange::reduce_scatter : Action::Exchange::allreduce,
                         Action::Axis::data, writer.elements(), settings.wire_bytes);
    writer.update_all(settings.zero > 0 ? writer.elements() / settings.data : writer.elements());
    if (settings.data > 1 && (settings.zero == 1 || settings.zero == 2))
      writer.communicate(Action::Lane::compute, Action::Exchange::all_gather, Action::Axis::data, writer.elements(),
                         static_cast<double>(settings.storage_bytes));
    programs.push_back(writer.take());
  }
  return programs;
}

/// Of a worker that talks to nobody.
inline std::vector<schedule::Program> lonely_programs(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  schedule::ProgramWriter writer(model, settings, 0);
  writer.passes();
  writer.update_all(writer.elements());
  return {writer.take()};
}

}  // namespace paceline::perf
