// How many steps a run has made, in a small file that is rewritten after each of them: a write goes to the kernel at once, so the number
// survives kill -9. A restart loses the steps between its checkpoint and this number. If the host goes down, the last ones may be missing.
#pragma once

#include <cstdint>
#include <filesystem>

#include "paceline/base/descriptor.h"

namespace paceline::observe {

class StepCount {
 public:
  /// For the run with that folder. If the file cannot be opened, nothing is counted: no run ends because of it.
  explicit StepCount(const std::filesystem::path& run);

  void set(std::int64_t steps) const;

  /// The last value, set by any process; 0 if there is none.
  static std::int64_t read(const std::filesystem::path& run);

 private:
  Descriptor file_;
};

}  // namespace paceline::observe
