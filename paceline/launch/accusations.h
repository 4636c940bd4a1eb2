// Whom the ranks blame, as they tell the launcher on standard error (base/launcher_line.h). Takes their lines out of the streams.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "paceline/base/launcher_line.h"

namespace paceline::launch {

class Accusations {
 public:
  /// What is left of a rank's standard error. The beginning of what may be such a line is kept back until more comes.
  std::string filter(int rank, std::string_view bytes);
  /// What was kept back, at the end of the stream.
  std::string rest(int rank);
  /// Forgets what a rank said that is started again.
  void forget(int rank) { lines_.erase(rank); }

  bool has_accused(int rank) const { return lines_.contains(rank); }
  /// Whom most ranks blame; of several, the one that the lowest rank blames, since rank 0 keeps the store that decides.
  std::optional<LauncherLine> verdict() const;

 private:
  std::map<int, std::string> kept_;    // by rank
  std::map<int, LauncherLine> lines_;  // by rank: what it said first
};

}  // namespace paceline::launch
