// The line that shows the progress of a run: a stateless function from numbers to text.
#pragma once

#include <cstdint>
#include <string>

#include "paceline/observe/event.h"
#include "paceline/observe/terminal.h"

namespace paceline::observe {

/// What the line shows. NaN or 0 hides a number.
struct Standing {
  std::int64_t epoch = 1, epochs = 1;
  std::int64_t step = 0, steps = 0;  // of this epoch
  std::int64_t run_step = 0, run_steps = 0;
  double loss = kUnknown, accuracy = kUnknown;
  double samples_per_s = kUnknown;
  double seconds_left = kUnknown;
  double communication_share = 0;
  double checkpoint_age = kUnknown;  // seconds
  std::int64_t memory_bytes = 0;
  int workers = 1;
};

/// For a terminal: as many numbers as its width holds, the least important left out first, and a bar in what remains.
std::string live_line(const Standing& standing, const Terminal& terminal);

/// For a file: everything, in words that can be searched for.
std::string plain_line(const Standing& standing);

}  // namespace paceline::observe
