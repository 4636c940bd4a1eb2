#include "paceline/program/help_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <set>
#include <sstream>

namespace paceline::program {
namespace {

constexpr std::size_t kWidestValues = 40;  // longer lists are in the description, or in `paceline list`

/// CLI11's "TYPE:CHECK:CHECK" in parts.
std::vector<std::string> parts_of_type(const CLI::Option& option) {
  std::vector<std::string> parts;
  std::istringstream text(option.get_type_name());
  for (std::string part; std::getline(text, part, ':');) parts.push_back(part);
  return parts;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// "from 0 to 60", which CLI11 writes as "FLOAT in [0 - 60]".
std::string range_of(const CLI::Option& option) {
  for (const std::string& part : parts_of_type(option)) {
    const auto begin = part.find(" in ["), middle = part.find(" - ");
    if (begin == std::string::npos || middle == std::string::npos || !part.ends_with(']')) continue;
    return fmt::format("from {} to {}", part.substr(begin + 5, middle - begin - 5), part.substr(middle + 3, part.size() - middle - 4));
  }
  return {};
}

std::string names_among(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) names.push_back(option->get_name());
  return fmt::format("{}", fmt::join(names, ", "));
}

class PlainHelp : public CLI::Formatter {
 public:
  PlainHelp() {
    label("Positionals", "Arguments");
    label("SUBCOMMAND", "COMMAND");
  }

  std::string make_option_name(const CLI::Option* option, bool) const override { return names_of(*option); }
  std::string make_option_desc(const CLI::Option* option) const override { return described(*option); }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional()) return {};  // its name is the word, and the usage line tells how many
    std::string text = takes_value(*option) ? " " + value_word(*option) : "";
    if (option->get_expected_min() > 1 && !text.ends_with("...")) text += fmt::format(" x {}", option->get_expected_min());
    return text;
  }
};

}  // namespace

CLI::Validator known_values(const std::vector<std::string>& values) {
  return {[](const std::string&) { return std::string(); }, fmt::format("{{{}}}", fmt::join(values, ","))};
}

std::vector<std::string> values_of(const CLI::Option& option) {
  std::vector<std::string> values;
  for (const std::string& part : parts_of_type(option)) {
    if (!part.starts_with('{') || !part.ends_with('}')) continue;
    std::istringstream list(part.substr(1, part.size() - 2));
    for (std::string value; std::getline(list, value, ',');) values.push_back(value);
  }
  return values;
}

std::string value_word(const CLI::Option& option) {
  if (!takes_value(option)) return {};
  const std::vector<std::string> parts = parts_of_type(option), values = values_of(option);
  const std::string type = parts.empty() ? "TEXT" : parts.front();
  if (type == "INT" || type == "UINT" || type == "FLOAT") return "NUMBER";
  if (type != "TEXT" || values.empty()) return type;
  const std::string all = fmt::format("{}", fmt::join(values, "|"));
  return all.size() <= kWidestValues ? all : "NAME";
}

std::string described(const CLI::Option& option) {
  std::vector<std::string> notes;
  if (option.get_required() && !option.get_positional()) notes.emplace_back("required");
  if (takes_value(option)) {
    if (const std::string range = range_of(option); !range.empty()) notes.push_back(range);
    if (const std::string usual = option.get_default_str(); !usual.empty()) notes.push_back("default " + usual);
  }
  if (!option.get_needs().empty()) notes.push_back("needs " + names_among(option.get_needs()));
  if (!option.get_excludes().empty()) notes.push_back("not with " + names_among(option.get_excludes()));
  return notes.empty() ? option.get_description() : fmt::format("{} ({})", option.get_description(), fmt::join(notes, ", "));
}

std::string names_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  const std::string names = option.get_name(false, true);
  return names.starts_with("-n,") ? "-n,-np," + names.substr(3) : names;
}

void use_plain_help(CLI::App& app) {
  app.formatter(std::make_shared<PlainHelp>());
  app.set_help_flag("-h,--help", "print this help and exit");
}

}  // namespace paceline::program
