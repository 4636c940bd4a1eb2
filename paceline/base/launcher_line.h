// How a rank tells `paceline run` whom it blames: a line on standard error, which also comes through ssh, and which the launcher removes
// from the stream. By itself, the launcher only sees how ranks end, and the first to end has often only noticed the failure of another.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "paceline/base/clock.h"

namespace paceline {

struct LauncherLine {
  int rank = -1;             // whom it blames
  Nanoseconds silent{0};     // for how long nothing was heard of that rank; 0: it is blamed for another reason
  std::string what;          // the error, in words
  std::string text() const;  ///< between kLauncherMark and a newline
  /// Parses the text between the mark and the newline.
  static std::optional<LauncherLine> parse(std::string_view text);
};

/// No ordinary text contains these bytes.
inline constexpr std::string_view kLauncherMark = "\x1e@paceline ";
inline constexpr std::size_t kLongestLauncherLine = 1024;

/// Writes such a line to standard error, if `paceline run` started this process and the error names one of `ranks`; a process may
/// have several.
void tell_launcher(const PeerError& error, int ranks);

}  // namespace paceline
