#include "paceline/base/suggest.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace paceline {

int edit_distance(std::string_view a, std::string_view b) {
  const std::size_t columns = b.size() + 1;
  std::vector<int> before(columns), last(columns), now(columns);
  for (std::size_t j = 0; j < columns; ++j) last[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = static_cast<int>(i);
    for (std::size_t j = 1; j < columns; ++j) {
      const int substitute = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, substitute});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[columns - 1];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  // A third of the letters may differ; a prefix of a word ("resnet" for "resnet18") is always near.
  int best_distance = static_cast<int>(std::max<std::size_t>(1, word.size() / 3)) + 1;
  for (std::string_view candidate : candidates) {
    int distance = edit_distance(word, candidate);
    if (word.size() >= 3 && candidate.starts_with(word)) distance = std::min(distance, 1);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string unknown_message(std::string_view what, std::string_view word, std::span<const std::string_view> candidates) {
  if (std::string_view near = nearest(word, candidates); !near.empty())
    return fmt::format("unknown {} '{}'; did you mean '{}'?", what, word, near);
  return fmt::format("unknown {} '{}'; known: {}", what, word, fmt::join(candidates, ", "));
}

}  // namespace paceline
