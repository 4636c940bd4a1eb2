// Splits text, and formats counts for people.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline {

/// Without the white space around it.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos ? std::string_view{} : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// The parts between separators: one more than there are separators.
inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// The parts of a list as people write it: trimmed, without empty parts.
inline std::vector<std::string> items_of(std::string_view list, char separator = ',') {
  std::vector<std::string> items;
  for (const std::string& part : split(list, separator))
    if (const auto item = trimmed(part); !item.empty()) items.emplace_back(item);
  return items;
}

/// 12,345
inline std::string show_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const int first = count < 0 ? 1 : 0;
  for (int at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) digits.insert(static_cast<std::size_t>(at), 1, ',');
  return digits;
}

/// 1 step, 12,345 steps
inline std::string plural(std::int64_t count, std::string_view word) {
  return show_count(count).append(" ").append(word).append(count == 1 ? "" : "s");
}

}  // namespace paceline
