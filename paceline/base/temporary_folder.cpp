#include "paceline/base/temporary_folder.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "paceline/base/error.h"

namespace paceline {

TemporaryFolder::TemporaryFolder() {
  std::error_code problem;
  std::string name = (std::filesystem::temp_directory_path(problem) / "paceline-XXXXXX").string();
  if (problem || !mkdtemp(name.data()))
    throw ConfigError(fmt::format("cannot create a folder like '{}'; set TMPDIR to a writable folder", name));
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace paceline
