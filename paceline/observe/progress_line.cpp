#include "paceline/observe/progress_line.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/observe/formatting.h"

namespace paceline::observe {
namespace {

constexpr int kLeastBar = 10, kMostBar = 40, kGap = 2;

struct Part {
  std::string text;
  Ink ink = Ink::plain;
  int rank = 0;  // the part with the largest rank is dropped first; 0 always stays
};

std::string bar(double share, int width, const Terminal& terminal) {
  share = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0);
  if (!terminal.unicode) {
    const int full = static_cast<int>(share * width);
    return terminal.ink(repeat("#", full), Ink::accent) + terminal.ink(repeat("-", width - full), Ink::dim);
  }
  const int halves = static_cast<int>(share * width * 2), full = halves / 2, half = halves % 2;
  return terminal.ink(repeat("━", full) + repeat("╸", half), Ink::accent) + terminal.ink(repeat("─", width - full - half), Ink::dim);
}

/// The parts after the bar, in the order of the line.
std::vector<Part> parts_of(const Standing& s) {
  std::vector<Part> parts;
  const std::string steps = show_count(s.steps);
  if (s.steps > 0) parts.push_back({fmt::format("{}/{}", fit(show_count(s.step), columns(steps), Align::right), steps), Ink::plain, 5});
  parts.push_back({fmt::format("loss {}", show_loss(s.loss)), std::isfinite(s.loss) ? Ink::plain : Ink::warn, 1});
  if (std::isfinite(s.accuracy)) parts.push_back({fmt::format("acc {}", show_percent(s.accuracy, 1)), Ink::plain, 2});
  if (s.samples_per_s > 0) parts.push_back({show_rate(s.samples_per_s) + "/s", Ink::plain, 4});
  if (std::isfinite(s.seconds_left)) parts.push_back({show_wait(s.seconds_left) + " left", Ink::accent, 3});
  if (s.communication_share > 0) parts.push_back({"comm " + show_percent(s.communication_share, 0), Ink::dim, 6});
  if (s.memory_bytes > 0) parts.push_back({show_bytes(s.memory_bytes), Ink::dim, 8});
  parts.push_back({plural(s.workers, "worker"), Ink::dim, 9});
  if (std::isfinite(s.checkpoint_age)) parts.push_back({fmt::format("saved {} ago", show_wait(s.checkpoint_age)), Ink::dim, 7});
  return parts;
}

}  // namespace

std::string live_line(const Standing& standing, const Terminal& terminal) {
  const int width = terminal.width() - 1;  // the last column would wrap
  const std::string epoch = fmt::format("epoch {}/{}", standing.epoch, standing.epochs);
  std::vector<Part> parts = parts_of(standing);
  const auto taken = [&] {
    int sum = columns(epoch) + kGap;
    for (const Part& part : parts) sum += kGap + columns(part.text);
    return sum;
  };
  while (!parts.empty() && taken() + kLeastBar > width) parts.erase(std::ranges::max_element(parts, {}, &Part::rank));

  const int room = width - taken();
  if (room < 1) return fit(epoch, std::max(0, width));
  const double share = standing.steps > 0 ? static_cast<double>(standing.step) / static_cast<double>(standing.steps) : 0;
  std::string line = terminal.ink(epoch, Ink::bold) + repeat(" ", kGap) + bar(share, std::min(room, kMostBar), terminal);
  for (const Part& part : parts) line += repeat(" ", kGap) + terminal.ink(part.text, part.ink);
  return line;
}

std::string plain_line(const Standing& s) {
  std::vector<std::string> parts = {fmt::format("loss {}", show_loss(s.loss))};
  if (std::isfinite(s.accuracy)) parts.push_back("accuracy " + show_percent(s.accuracy, 1));
  if (s.samples_per_s > 0) parts.push_back(show_rate(s.samples_per_s) + " samples/s");
  if (s.communication_share > 0) parts.push_back("communication " + show_percent(s.communication_share, 0));
  if (s.memory_bytes > 0) parts.push_back("memory " + show_bytes(s.memory_bytes));
  if (std::isfinite(s.seconds_left)) parts.push_back(show_wait(s.seconds_left) + " left");
  return fmt::format("epoch {}/{}, step {}/{}: {}", s.epoch, s.epochs, s.run_step, s.run_steps, fmt::join(parts, ", "));
}

}  // namespace paceline::observe
