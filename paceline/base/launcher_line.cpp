#include "paceline/base/launcher_line.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

namespace paceline {
namespace {

/// The number up to the next space; removes both from the text.
template <class Number>
bool take_number(std::string_view& text, Number& number) {
  const std::size_t space = std::min(text.find(' '), text.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + space, number);
  if (error != std::errc() || end != text.data() + space) return false;
  text.remove_prefix(std::min(space + 1, text.size()));
  return true;
}

}  // namespace

std::string LauncherLine::text() const {
  std::string line = fmt::format("{}{} {} {}", kLauncherMark, rank, silent.count(), what);
  std::ranges::replace(line, '\n', ' ');
  line.resize(std::min(line.size(), kLongestLauncherLine - 1));
  return line + "\n";
}

std::optional<LauncherLine> LauncherLine::parse(std::string_view text) {
  LauncherLine line;
  std::int64_t silent = 0;
  if (!take_number(text, line.rank) || !take_number(text, silent)) return std::nullopt;
  line.silent = Nanoseconds(silent);
  line.what = text;
  return line;
}

void tell_launcher(const PeerError& error, int ranks) {
  const char* const processes = std::getenv("WORLD_SIZE");
  if (error.rank() < 0 || processes == nullptr || std::getenv("PACELINE_RESTARTS") == nullptr) return;
  const int each = std::max(1, ranks / std::max(1, std::atoi(processes)));
  LauncherLine line{.rank = error.rank() / each, .what = error.what()};
  if (const auto* silent = dynamic_cast<const PeerSilent*>(&error)) line.silent = silent->silent();
  const std::string text = line.text();
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());  // in one call: others write there too
}

}  // namespace paceline
