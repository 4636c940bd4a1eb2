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

/// Throws where a message that quotes the text, or a path made from it, would end in its middle.
void refuse_nul(std::string_view text, const std::string& whose) {
  if (text.find('\0') != std::string_view::npos) throw ConfigError(whose + " holds the character \\u0000; leave it out");
}

Value to_value(const toml::node& node, const std::string& key) {
  if (const auto* v = node.as_boolean()) return v->get();
  if (const auto* v = node.as_integer()) return v->get();
  if (const auto* v = node.as_floating_point()) return v->get();
  if (const auto* v = node.as_string()) return refuse_nul(v->get(), key), v->get();
  const auto* list = node.as_array();
  if (!list) throw ConfigError(key + " must be a boolean, a number, text or a list");
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  for (const auto& item : *list) {
    if (!item.is_number()) throw ConfigError(key + " must be a list of numbers");
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
  const auto with_line = [&](const toml::node& node, auto&& read) {
    try {
      read();
    } catch (const ConfigError& problem) {
      throw ConfigError(fmt::format("{}, line {}: {}", name, node.source().begin.line, problem.what()));
    }
  };
  for (const auto& [section, node] : parsed.table()) {
    const std::string above(section.str());
    const auto* table = node.as_table();
    with_line(node, [&] {
      refuse_nul(above, "the name of a section");
      if (!table) throw ConfigError(fmt::format("'{}' stands outside a section; write [section] above it", above));
    });
    for (const auto& [key, value] : *table) {
      const std::string below(key.str());
      with_line(value, [&, &item = value] {
        refuse_nul(below, fmt::format("a key in [{}]", above));
        at(above).at(below);  // first: where there is no such key, no value is right
        assign(above, below, to_value(item, fmt::format("{}.{}", above, below)));
      });
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
namespace {
constexpr std::uintmax_t kLargestRecipe = 1 << 20;
}  // namespace

void Config::load(const std::filesystem::path& toml_file) {
  std::error_code code;  // what stands in the way of one that is there, read_file tells
  if (std::filesystem::status(toml_file, code).type() == std::filesystem::file_type::not_found)
    throw ConfigError(toml_file.string() + ": no such recipe; `ls recipes` shows those that come along");
  // A file of data, given by mistake, would be read and parsed for minutes.
  if (const auto bytes = std::filesystem::file_size(toml_file, code); !code && bytes > kLargestRecipe)
    throw ConfigError(
        fmt::format("{}: has {} bytes, and a recipe has {} at most; is it another file?", toml_file.string(), bytes, kLargestRecipe));
  load_text(read_file(toml_file), toml_file.string());
}

}  // namespace paceline
