// A TOML file as a list of its keys with their line numbers, for files whose sections are not known in advance. Recipes, whose sections
// are known, are read by Config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "paceline/base/config.h"

namespace paceline {

/// One key, or the heading of a section if the key is empty. [link.ethernet] is the section "link.ethernet".
struct TomlEntry {
  std::string section, key;
  Value value;
  std::int64_t line = 0;
};

/// Grouped by section in alphabetical order, each with its heading first. Throws ConfigError with `source` and the line.
std::vector<TomlEntry> read_toml(const std::string& text, const std::string& source);

}  // namespace paceline
