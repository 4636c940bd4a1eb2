// Which rank the others blame, as they tell the launcher on standard error (base/launcher_line.h). Removes their lines from the streams.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "paceline/base/launcher_line.h"

namespace paceline::launch {

class BlameLines {
 public:
  /// Passes on a rank's standard error without such lines. The beginning of a possible line is held back until more arrives.
  std::string filter(int rank, std::string_view bytes);
  /// Returns what was held back, at the end of the stream.
  std::string rest(int rank);
  /// Forgets what a rank said before it was restarted.
  void forget(int rank) { lines_.erase(rank); }

  bool has_blamed(int rank) const { return lines_.contains(rank); }
  /// The rank that most ranks blame; of several, the one that the lowest rank blames, since rank 0 has the store that decides.
  std::optional<LauncherLine> verdict() const;

 private:
  std::map<int, std::string> kept_;    // by rank
  std::map<int, LauncherLine> lines_;  // by rank: what it said first
};

}  // namespace paceline::launch
