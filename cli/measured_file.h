// What `probe` and `profile` share: lists of numbers on the command line, and names as a file takes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::cli {

/// "8,32": ascending, each once. ConfigError with the flag where one is not a whole number from 1 to `most`, or there is none.
std::vector<std::int64_t> whole_list(std::string_view text, std::string_view flag, std::int64_t most);

/// Letters, digits, _ and - alone: "NVIDIA H200" becomes "nvidia_h200".
std::string plain_name(std::string_view name);

}  // namespace paceline::cli
