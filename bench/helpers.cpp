#include "helpers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "paceline/base/error.h"

namespace paceline::bench {

namespace fs = std::filesystem;

std::string helper_if_any(const std::string& name) {
  const fs::path here = fs::canonical("/proc/self/exe").parent_path();
  for (const fs::path& folder : {here, here / PACELINE_HELPERS, fs::path(PACELINE_SOURCE_DIR) / "bench/peers"})
    if (std::error_code ignored; fs::exists(folder / name, ignored)) return (folder / name).lexically_normal().string();
  return {};
}

std::string helper(const std::string& name) {
  const std::string found = helper_if_any(name);
  if (found.empty())
    throw ConfigError(
        fmt::format("this benchmark needs the program {}, which is neither beside paceline nor in {}; build it (make bench) or "
                    "install Paceline with it (make install)",
                    name, PACELINE_HELPERS));
  return found;
}

std::string main_program() {
  const fs::path self = fs::canonical("/proc/self/exe");
  for (const fs::path& folder : {self.parent_path(), self.parent_path() / PACELINE_PROGRAMS})
    if (std::error_code ignored; fs::exists(folder / "paceline", ignored)) return (folder / "paceline").lexically_normal().string();
  throw ConfigError(fmt::format("{} needs the program paceline, which is neither beside it nor in {}; build it (make program)",
                                self.filename().string(), PACELINE_PROGRAMS));
}

void become(const std::string& program, char** arguments) {
  ::execv(program.c_str(), arguments);
  throw Error(fmt::format("{} cannot be started: {}", program, std::system_category().message(errno)));
}

}  // namespace paceline::bench
