// What `probe` and `profile` share: lists of numbers on the command line, and names that are valid in files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paceline::cli {

/// "8,32" as numbers, ascending and without duplicates. ConfigError that names the flag if one is not a whole number from 1 to `most`, or
/// if the list is empty.
std::vector<std::int64_t> whole_list(std::string_view text, std::string_view flag, std::int64_t most);

/// Keeps only letters, digits, _ and -: "NVIDIA H200" becomes "nvidia_h200".
std::string plain_name(std::string_view name);

}  // namespace paceline::cli
