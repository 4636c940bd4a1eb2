// Registries are constant tables: one row per entry, with its key, a line of help and a factory.
//
// They drive --help, validation with "did you mean", `paceline list`, the generated tables of the docs and the parameters of
// the conformance tests. There is no registration at run time, so the table in a folder's registry.cpp is complete.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/base/suggest.h"

namespace paceline {

template <class Make>
struct Entry {
  std::string_view key;
  std::string_view help;
  Make make;
};

/// A row without its factory: what `paceline list` and the docs show.
struct Listing {
  std::string_view key;
  std::string_view help;
};

template <class Make>
std::vector<Listing> listing(std::span<const Entry<Make>> table) {
  std::vector<Listing> rows;
  rows.reserve(table.size());
  for (const auto& entry : table) rows.push_back({entry.key, entry.help});
  return rows;
}

/// The row with this key. Throws ConfigError that names the nearest key.
template <class Make>
const Entry<Make>& find(std::span<const Entry<Make>> table, std::string_view what, std::string_view key) {
  const auto found = std::ranges::find(table, key, &Entry<Make>::key);  // allocates nothing: collectives ask at every call
  if (found != table.end()) return *found;
  std::vector<std::string_view> keys;
  for (const auto& entry : table) keys.push_back(entry.key);
  throw ConfigError(unknown_message(what, key, keys));
}

}  // namespace paceline
