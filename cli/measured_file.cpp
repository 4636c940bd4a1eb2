#include "measured_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "paceline/base/error.h"
#include "paceline/base/text.h"

namespace paceline::cli {

std::vector<std::int64_t> whole_list(std::string_view text, std::string_view flag, std::int64_t most) {
  std::set<std::int64_t> numbers;
  for (const std::string& item : items_of(text)) {
    std::int64_t number = 0;
    const auto [end, problem] = std::from_chars(item.data(), item.data() + item.size(), number);
    if (problem != std::errc{} || end != item.data() + item.size() || number < 1 || number > most)
      throw ConfigError(fmt::format("{}: '{}' is not a whole number from 1 to {}", flag, item, most));
    numbers.insert(number);
  }
  if (numbers.empty()) throw ConfigError(fmt::format("{} needs at least one number, for example {} 1,2", flag, flag));
  return {numbers.begin(), numbers.end()};
}

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) || c == '-') plain += static_cast<char>(std::tolower(letter));
    else if (!plain.empty() && plain.back() != '_') plain += '_';
  }
  while (plain.ends_with('_')) plain.pop_back();
  return plain.empty() ? "device" : plain;
}

}  // namespace paceline::cli
