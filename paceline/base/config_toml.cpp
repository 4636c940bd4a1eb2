// Config::load and load_text: the one place that knows TOML (toml++, header only).
#include <fmt/format.h>

#include "paceline/base/config.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"

#if PACELINE_WITH_TOML
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace paceline {
namespace {

Value to_value(const toml::node& node) {
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_string()) return v->get();
  const auto* list = node.as_array();
  if (!list) throw ConfigError("must be a boolean, a number, text or a list");
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  for (const auto& item : *list) {
    if (!item.is_number()) throw ConfigError("must be a list of numbers");
    if (item.is_integer()) integers.push_back(item.as_integer()->get());
    numbers.push_back(*item.value<double>());
  }
  if (integers.size() == numbers.size()) return integers;
  return numbers;
}

}  // namespace

void Config::load_text(const std::string& text, const std::string& name) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) throw ConfigError(fmt::format("{}, line {}: {}", name, parsed.error().source().begin.line, parsed.error().description()));
  for (const auto& [section, node] : parsed.table()) {
    const auto* table = node.as_table();
    if (!table)
      throw ConfigError(fmt::format("{}, line {}: '{}' stands outside a section; write [section] above it", name, node.source().begin.line,
                                    section.str()));
    for (const auto& [key, value] : *table) {
      try {
        assign(section.str(), key.str(), to_value(value));
      } catch (const ConfigError& problem) {
        throw ConfigError(fmt::format("{}, line {}: {}", name, value.source().begin.line, problem.what()));
      }
    }
  }
}

}  // namespace paceline

#else

namespace paceline {

void Config::load_text(const std::string&, const std::string& source) {
  throw ConfigError(source + ": this build has no TOML reader (toml++ was not found); give the settings as section.key=value");
}

}  // namespace paceline

#endif

namespace paceline {

void Config::load(const std::filesystem::path& toml_file) {
  if (!std::filesystem::is_regular_file(toml_file))
    throw ConfigError(toml_file.string() + ": no such recipe; `ls recipes` shows those that come along");
  load_text(read_file(toml_file), toml_file.string());
}

}  // namespace paceline
