#include "paceline/data/dataset_files.h"

#include <fmt/format.h>

#include <cstdlib>

#include "paceline/base/error.h"
#include "paceline/base/files.h"

namespace paceline::data {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code problem;
  const bool there = fs::exists(path, problem);
  if (problem) throw DataError(path.string(), fmt::format("cannot access it: {}", problem.message()));
  return there;
}

fs::path find_root(const DataConfig& config, std::string_view standard, std::string_view holds) {
  if (config.root.empty()) {
    const char* shelf = std::getenv("PACELINE_DATA");
    if (shelf && !standard.empty() && is_there(fs::path(shelf) / standard)) return fs::path(shelf) / standard;
    throw ConfigError(fmt::format("dataset '{}' needs files: set data.root to {}{}", config.name, holds,
                                  standard.empty() ? "" : fmt::format(", or PACELINE_DATA to the folder that contains {}", standard)));
  }
  if (!standard.empty() && is_there(fs::path(config.root) / standard)) return fs::path(config.root) / standard;
  if (!is_there(config.root)) throw DataError(config.root, fmt::format("no such file or folder; data.root must be {}", holds));
  return config.root;
}

std::string read_file_of_size(const fs::path& file, std::int64_t expected_bytes) {
  // Checked before reading, since a wrong file may be huge. A missing file is left to read_file, which says why.
  std::error_code unknown;
  const auto bytes = static_cast<std::int64_t>(fs::file_size(file, unknown));
  if (!unknown && bytes != expected_bytes)
    throw DataError(file.string(), fmt::format("has {} bytes, expected {}; the file is {}. Download it again", bytes, expected_bytes,
                                               bytes < expected_bytes ? "cut short" : "too long"));
  std::string content = read_file(file);
  if (static_cast<std::int64_t>(content.size()) != expected_bytes) throw DataError(file.string(), "changed while it was read");
  return content;
}

}  // namespace paceline::data
