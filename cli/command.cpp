#include "command.h"

#include <iostream>
#include <nlohmann/json.hpp>

namespace paceline::cli {

void add_examples(CLI::App& app, std::initializer_list<const char*> lines) {
  std::string text = "Examples:";
  for (const char* line : lines) text += std::string("\n  ") + line;
  app.footer(text);
}

void add_json_flag(CLI::App& app, bool& json) { app.add_flag("--json", json, "print one JSON document on standard output"); }

void print_json(const nlohmann::ordered_json& document) { std::cout << document.dump(2) << std::endl; }

}  // namespace paceline::cli
