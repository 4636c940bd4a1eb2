// Which cores a thread runs on.
#pragma once

namespace paceline {

/// Keeps this thread, and the threads that it starts later, to part `index` of `parts` of the cores that it may use now. Ranks that meet
/// often must not be moved onto one core, where each would keep the other from arriving. Does nothing where there are fewer cores than
/// parts.
void keep_to_cores(int index, int parts);

}  // namespace paceline
