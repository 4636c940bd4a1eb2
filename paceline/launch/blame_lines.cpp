#include "paceline/launch/blame_lines.h"

#include <algorithm>
#include <utility>

namespace paceline::launch {
namespace {

/// The position of the first byte that may begin a mark; the size if there is none.
std::size_t begun_mark(std::string_view text) {
  for (std::size_t length = std::min(kLauncherMark.size() - 1, text.size()); length > 0; --length)
    if (text.ends_with(kLauncherMark.substr(0, length))) return text.size() - length;
  return text.size();
}

}  // namespace

std::string BlameLines::filter(int rank, std::string_view bytes) {
  std::string text = std::exchange(kept_[rank], {});
  text += bytes;
  std::string passed;
  for (std::size_t mark; (mark = text.find(kLauncherMark)) != std::string::npos;) {
    const std::size_t begin = mark + kLauncherMark.size(), end = text.find('\n', mark);
    if (end == std::string::npos && text.size() - mark < kLongestLauncherLine) {
      passed += text.substr(0, mark);
      kept_[rank] = text.substr(mark);
      return passed;
    }
    passed += text.substr(0, mark);
    const auto line = end == std::string::npos ? std::nullopt : LauncherLine::parse(std::string_view(text).substr(begin, end - begin));
    if (line) lines_.try_emplace(rank, *line);
    text.erase(0, line ? end + 1 : begin);
  }
  const std::size_t whole = begun_mark(text);
  kept_[rank] = text.substr(whole);
  return passed + text.substr(0, whole);
}

std::string BlameLines::rest(int rank) { return std::exchange(kept_[rank], {}); }

std::optional<LauncherLine> BlameLines::verdict() const {
  std::map<int, int> votes;
  for (const auto& [accuser, line] : lines_) ++votes[line.rank];
  const LauncherLine* chosen = nullptr;
  for (const auto& [accuser, line] : lines_) {
    if (chosen == nullptr || votes[line.rank] > votes[chosen->rank]) chosen = &line;
    else if (line.rank == chosen->rank && line.silent > chosen->silent) chosen = &line;  // the later line has more information
  }
  return chosen == nullptr ? std::nullopt : std::optional(*chosen);
}

}  // namespace paceline::launch
