// How a rank tells `paceline run` whom it blames: a line on standard error, which comes through ssh as well, and which the launcher takes
// out of the stream. The launcher sees only how ranks end, and the first to end is often one that noticed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "paceline/base/clock.h"

namespace paceline {

struct LauncherLine {
  int rank = -1;             // whom it blames
  Nanoseconds silent{0};     // how long nothing was heard of that rank; 0: that is not why
  std::string what;          // the error, in words
  std::string text() const;  ///< with kLauncherMark in front and a line's end behind
  /// What stands between the mark and the line's end.
  static std::optional<LauncherLine> parse(std::string_view text);
};

/// No text has these bytes.
inline constexpr std::string_view kLauncherMark = "\x1e@paceline ";
inline constexpr std::size_t kLongestLauncherLine = 1024;

/// Writes such a line to standard error, if `paceline run` started this process and the error names one of `ranks`, of which a process may
/// play several.
void tell_launcher(const PeerError& error, int ranks);

}  // namespace paceline
