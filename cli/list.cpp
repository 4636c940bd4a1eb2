// paceline list: everything that a recipe can name, from the registries; `list keys`: every key of a recipe.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "catalog.h"
#include "command.h"
#include "paceline/base/suggest.h"

namespace paceline::cli {
namespace {

constexpr std::string_view kKeys = "keys";  // only shown when asked for by name, because scripts rely on the content of `list --json`

std::size_t widest(std::size_t least, const auto& rows) {
  for (const auto& row : rows) least = std::max(least, row.key.size());
  return least;
}

int list_keys(bool json) {
  const std::vector<RecipeKey> keys = recipe_keys();
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const RecipeKey& row : keys) {
    rows.push_back({{"key", row.key}, {"help", row.help}, {"type", row.type}, {"default", row.value}, {"allowed", row.allowed}});
    if (!json) std::cout << fmt::format("  {:<{}}  {:<12} {}\n", row.key, widest(20, keys), row.value, row.help);
  }
  if (json) print_json({{kKeys, rows}});
  return kDone;
}

int list_registries(const std::string& only, bool json) {
  std::vector<std::string_view> names = {kKeys};
  for (const Shelf& shelf : catalog()) names.push_back(shelf.name);
  const bool known = only.empty() || std::find(names.begin(), names.end(), only) != names.end();
  if (!known) throw ConfigError(unknown_message("list", only, names));
  nlohmann::ordered_json document = nlohmann::ordered_json::object();
  std::string text;
  for (const Shelf& shelf : catalog()) {
    if (!only.empty() && only != shelf.name) continue;
    auto& rows = document[std::string(shelf.name)] = nlohmann::ordered_json::array();
    if (!shelf.rows.empty()) text += fmt::format("{}{}\n", text.empty() ? "" : "\n", shelf.name);
    for (std::size_t i = 0; i < shelf.rows.size(); ++i) {
      const Listing& row = shelf.rows[i];
      rows.push_back({{"key", row.key}, {"help", row.help}});
      if (!shelf.more.empty())
        for (const Column& column : shelf.more[i]) rows.back()[std::string(column.name)] = column.value;
      text += fmt::format("  {:<{}}  {}\n", row.key, widest(18, shelf.rows), row.help);
    }
  }
  if (json) print_json(document);
  else std::cout << text;
  return kDone;
}

}  // namespace

Action add_list(CLI::App& app) {
  struct Flags {
    std::string only;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("WHAT", flags->only, "print this list only, for example networks; keys: every recipe key with its default");
  add_json_flag(app, flags->json);
  add_examples(app, {"paceline list", "paceline list networks", "paceline list keys", "paceline list --json"});
  return [flags] { return flags->only == kKeys ? list_keys(flags->json) : list_registries(flags->only, flags->json); };
}

}  // namespace paceline::cli
