#include "paceline/observe/step_count.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include <fmt/format.h>

namespace paceline::observe {
namespace {
constexpr const char* kStepFile = ".steps";
}  // namespace

StepCount::StepCount(const std::filesystem::path& run) : file_(::open((run / kStepFile).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)) {}

void StepCount::set(std::int64_t steps) const {
  if (!file_) return;
  const std::string text = fmt::format("{:019}\n", steps);  // fixed length, so that nothing of an older number is left
  [[maybe_unused]] const ssize_t written = ::pwrite(file_.get(), text.data(), text.size(), 0);
}

std::int64_t StepCount::read(const std::filesystem::path& run) {
  std::ifstream in(run / kStepFile);
  std::int64_t steps = 0;
  return in >> steps ? steps : 0;
}

}  // namespace paceline::observe
