#include "paceline/observe/run_folder.h"

#include <algorithm>
#include <cctype>
#include <fstream>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/files.h"

namespace paceline::observe {

namespace fs = std::filesystem;

namespace {
constexpr const char* kMark = ".job";
constexpr std::size_t kLongestName = 200;  // leaves room for a number after it
}  // namespace

RunFolder RunFolder::create(const fs::path& runs, const std::string& name) {
  const auto plain = [](unsigned char c) { return c >= 0x20 && c != 0x7f && c != '/'; };
  if (name.empty() || name == "." || name == ".." || name.size() > kLongestName || !std::ranges::all_of(name, plain))
    throw ConfigError(fmt::format("'{}' cannot be the name of a run: give at most {} bytes, without '/' and control characters",
                                  name.substr(0, kLongestName), kLongestName));
  ensure_writable_folder(runs);
  for (int number = 1;; ++number) {
    const fs::path path = runs / (number == 1 ? name : fmt::format("{}-{}", name, number));
    std::error_code code;
    if (fs::create_directory(path, code)) return RunFolder(path);
    if (code && !fs::exists(path)) throw ConfigError(fmt::format("cannot create the run folder {}: {}", path.string(), code.message()));
  }
}

RunFolder RunFolder::open(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw ConfigError(fmt::format("there is no run folder {}", folder.string()));
  ensure_writable_folder(folder);
  return RunFolder(folder);
}

std::optional<RunFolder> RunFolder::find(const fs::path& runs, const std::string& job) {
  std::error_code ignored;
  for (fs::directory_iterator item(runs, ignored), end; item != end; item.increment(ignored))
    if (const RunFolder run(item->path()); run.is_of(job)) return run;
  return std::nullopt;
}

bool RunFolder::is_of(const std::string& job) const {
  std::ifstream mark(path_ / kMark);
  std::string text;
  return !job.empty() && std::getline(mark, text) && text == job;
}

void RunFolder::mark(const std::string& job) const { write_atomically(path_ / kMark, job + "\n"); }

void RunFolder::forget(const fs::path& runs, const std::string& job) {
  std::error_code ignored;
  for (std::optional<RunFolder> run = find(runs, job); run && fs::remove(run->path_ / kMark, ignored);) run = find(runs, job);
}

fs::path RunFolder::new_trace() const {
  fs::path file = path_ / "trace.json";
  for (int number = 2; fs::exists(file); ++number) file = path_ / fmt::format("trace-{}.json", number);
  return file;
}

std::string RunFolder::default_name(std::string_view network, std::string_view dataset, std::time_t now) {
  std::string name = fmt::format("{}-{}-{:%Y%m%d-%H%M%S}", network, dataset, fmt::localtime(now));
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-') c = '-';
  return name;
}

}  // namespace paceline::observe
