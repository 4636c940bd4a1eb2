// A file that grows during a run. What was flushed survives a kill; a record is flushed at least once a second and at every major event of
// the run, so that it costs a step next to nothing.
#pragma once

#include <filesystem>
#include <fstream>
#include <string_view>

#include "paceline/base/clock.h"

namespace paceline::observe {

class OutputFile {
 public:
  /// Appends, so that a resumed run continues its record. Throws ConfigError if the file cannot be opened. The clock must outlive it.
  OutputFile(std::filesystem::path path, const Clock& clock);

  /// Throws DataError if writing fails.
  void write(std::string_view record);
  void flush();

 private:
  std::filesystem::path path_;
  const Clock& clock_;
  std::ofstream out_;
  Nanoseconds flushed_;
};

}  // namespace paceline::observe
