// What an Exchange does with a bucket, as actions of a step program (schedule/program.h).
#pragma once

#include <vector>

#include "paceline/schedule/program_writer.h"

namespace paceline::data_parallel {

/// Adds the actions of Exchange::average(), or of scatter(), for a bucket of this many elements. `ready`: those that precede the first one.
void write_exchange(schedule::ProgramWriter& writer, const schedule::ProgramSettings& settings, schedule::Action::Lane lane,
                    std::int64_t elements, bool scatters, const std::vector<int>& ready);

}  // namespace paceline::data_parallel
