// paceline list: everything that a recipe can name, from the registries.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "catalog.h"
#include "command.h"
#include "paceline/base/suggest.h"

namespace paceline::cli {

Action add_list(CLI::App& app) {
  struct Flags {
    std::string only;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("WHAT", flags->only, "one list only, for example networks");
  add_json_flag(app, flags->json);
  add_examples(app, {"paceline list", "paceline list networks", "paceline list --json"});
  return [flags] {
    std::vector<std::string_view> names;
    for (const Shelf& shelf : catalog()) names.push_back(shelf.name);
    const bool known = flags->only.empty() || std::find(names.begin(), names.end(), flags->only) != names.end();
    if (!known) throw ConfigError(unknown_message("list", flags->only, names));
    nlohmann::ordered_json document = nlohmann::ordered_json::object();
    std::string text;
    for (const Shelf& shelf : catalog()) {
      if (!flags->only.empty() && flags->only != shelf.name) continue;
      document[std::string(shelf.name)] = nlohmann::ordered_json::array();
      if (!shelf.rows.empty()) text += fmt::format("{}{}\n", text.empty() ? "" : "\n", shelf.name);
      for (const Listing& row : shelf.rows) {
        document[std::string(shelf.name)].push_back({{"key", row.key}, {"help", row.help}});
        text += fmt::format("  {:<20} {}\n", row.key, row.help);
      }
    }
    if (flags->json) print_json(document);
    else std::cout << text;
    return kDone;
  };
}

}  // namespace paceline::cli
