#include "paceline/base/config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"
#include "paceline/base/suggest.h"
#include "paceline/base/text.h"

namespace paceline {
namespace {

/// Removes underscores by TOML's rule: each must be between two digits. A text that breaks the rule is returned unchanged, and is then not
/// a number.
std::string without_underscores(std::string_view text) {
  const auto digit = [&](std::size_t at) { return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])); };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') out += text[i];
    else if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::string(text);
  }
  return out;
}

/// Without a leading +, which from_chars does not accept. "+-1" is not a number.
std::string_view without_plus(std::string_view text) { return text.starts_with('+') && !text.starts_with("+-") ? text.substr(1) : text; }

/// As TOML writes integers: 64, 1_000, 0x40, 0o100, 0b1000000.
bool parse_integer(std::string_view item, std::int64_t& out) {
  const std::string digits = without_underscores(item);
  std::string_view text = digits;
  int base = 10;
  if (text.starts_with("0x")) base = 16;
  if (text.starts_with("0o")) base = 8;
  if (text.starts_with("0b")) base = 2;
  if (base == 10) text = without_plus(text);
  else text.remove_prefix(2);
  if (base != 10 && text.starts_with('-')) return false;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return code == std::errc{} && end == text.data() + text.size();
}

/// A number that is too large becomes infinite, which no field accepts; one that is too small becomes zero.
bool parse_number(std::string_view item, double& out) {
  const std::string digits = without_underscores(item);
  const std::string_view text = without_plus(digits);
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (end != text.data() + text.size()) return false;
  if (code == std::errc::result_out_of_range) out = std::strtod(std::string(text).c_str(), nullptr);
  return code != std::errc::invalid_argument;
}

bool is_utf8(const std::string& text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7f) out += fmt::format("\\u{:04x}", code);
    else out += c;
  }
  return out + '"';
}

std::string number_toml(double number) {
  std::string text = fmt::format("{}", number);
  // TOML tells floats from integers by the point or the exponent.
  if (std::isfinite(number) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string kind_of(const Value& value) {
  static constexpr const char* kNames[] = {"a boolean", "an integer", "a number", "text", "a list of integers", "a list of numbers"};
  return kNames[value.index()];
}

std::string show(const Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>) return quote(v);
        else if constexpr (std::is_same_v<T, double>) return number_toml(v);
        else return fmt::format("{}", v);
      },
      value);
}

Value parse_list(std::string_view text) {
  std::vector<std::int64_t> integers;
  std::vector<double> numbers;
  bool whole = true;
  std::vector<std::string> parts = split(text.substr(1, text.size() - 2), ',');
  if (trimmed(parts.back()).empty()) parts.pop_back();  // an empty list, or a comma after the last item
  for (const std::string& part : parts) {
    const std::string_view item = trimmed(part);
    std::int64_t integer = 0;
    const bool is_integer = parse_integer(item, integer);
    auto number = static_cast<double>(integer);
    if (!is_integer && !parse_number(item, number)) return std::string(text);
    whole = whole && is_integer;
    integers.push_back(integer);
    numbers.push_back(number);
  }
  if (whole) return integers;
  return numbers;
}

}  // namespace

Value parse_value(std::string_view text) {
  text = trimmed(text);
  if (text == "true") return true;
  if (text == "false") return false;
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    return std::string(text.substr(1, text.size() - 2));
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') return parse_list(text);
  std::int64_t integer = 0;
  if (parse_integer(text, integer)) return integer;
  double number = 0;
  if (parse_number(text, number)) return number;
  return std::string(text);
}

std::string Field::type() const {
  static constexpr const char* kNames[] = {"boolean", "integer", "number", "text", "list of integers", "list of numbers"};
  return kNames[target_.index()];
}

std::string Field::toml() const {
  return std::visit(
      [](const auto* target) -> std::string {
        using T = std::decay_t<decltype(*target)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return quote(*target);
        } else if constexpr (std::is_same_v<T, double>) {
          return number_toml(*target);
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          std::vector<std::string> items;
          for (double number : *target) items.push_back(number_toml(number));
          return fmt::format("[{}]", fmt::join(items, ", "));
        } else {
          return fmt::format("{}", *target);
        }
      },
      target_);
}

std::string Field::allowed() const {
  if (!choices_.empty()) return fmt::format("one of {}", fmt::join(choices_, ", "));
  if (least_ == most_) return fmt::format("{}", least_);
  std::string text;
  if (std::isfinite(least_)) text = fmt::format("{} {}", least_excluded_ ? "above" : "at least", least_);
  if (std::isfinite(most_)) text += fmt::format("{}at most {}", text.empty() ? "" : " and ", most_);
  return text;
}

void Field::check(double number) const {
  if (std::isinf(number)) throw ConfigError("is out of range: it must be a finite number");
  if (std::isnan(number)) throw ConfigError("must be a finite number, not nan");
  const bool low = least_excluded_ ? !(number > least_) : !(number >= least_);
  if (low || !(number <= most_)) throw ConfigError(fmt::format("must be {}, not {}", allowed(), number));
}

Value Field::value() const {
  return std::visit([](const auto* target) { return Value(*target); }, target_);
}

void Field::assign(const Value& value) {
  std::visit(
      [&](auto* target) {
        using T = std::decay_t<decltype(*target)>;
        if (const T* same = std::get_if<T>(&value)) {
          if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) check(static_cast<double>(*same));
          if constexpr (std::is_same_v<T, std::vector<double>> || std::is_same_v<T, std::vector<std::int64_t>>)
            for (auto number : *same) check(static_cast<double>(number));
          if constexpr (std::is_same_v<T, std::string>) {
            if (!is_utf8(*same)) throw ConfigError("must be text in UTF-8");  // otherwise a recipe or a summary could not be read again
            bool known = choices_.empty();
            for (std::string_view choice : choices_) known = known || choice == *same;
            if (!known) throw ConfigError(": " + unknown_message("value", *same, choices_));
          }
          *target = *same;
        } else if constexpr (std::is_same_v<T, double>) {  // 1 is a number too
          const auto* integer = std::get_if<std::int64_t>(&value);
          if (!integer) throw ConfigError(fmt::format("must be a {}, not {} ({})", type(), kind_of(value), show(value)));
          check(static_cast<double>(*integer));
          *target = static_cast<double>(*integer);
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          const auto* integers = std::get_if<std::vector<std::int64_t>>(&value);
          if (!integers) throw ConfigError(fmt::format("must be a {}, not {} ({})", type(), kind_of(value), show(value)));
          for (auto number : *integers) check(static_cast<double>(number));
          target->assign(integers->begin(), integers->end());
        } else {
          throw ConfigError(
              fmt::format("must be {} {}, not {} ({})", type() == "integer" ? "an" : "a", type(), kind_of(value), show(value)));
        }
      },
      target_);
}

Field& Section::at(std::string_view key) {
  std::vector<std::string_view> keys;
  for (Field& field : fields_) {
    if (field.key() == key) return field;
    keys.push_back(field.key());
  }
  throw ConfigError(unknown_message(fmt::format("key in [{}]", name_), key, keys));
}

Section& Config::at(std::string_view name) {
  std::vector<std::string_view> names;
  for (Section& section : sections_) {
    if (section.name() == name) return section;
    names.push_back(section.name());
  }
  throw ConfigError(unknown_message("section", name, names));
}

void Config::check() {
  for (const Section& section : sections_)
    for (const Field& field : section.fields()) assign(section.name(), field.key(), field.value());
}

void Config::assign(std::string_view section, std::string_view key, const Value& value) {
  Field& field = at(section).at(key);
  try {
    field.assign(value);
  } catch (const ConfigError& problem) {
    const std::string_view what = problem.what();
    throw ConfigError(fmt::format("{}.{}{}{}", section, key, what.starts_with(':') ? "" : " ", what));
  }
}

bool is_assignment(std::string_view word) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, equals);
  const auto dot = std::min(name.find('.'), name.size());
  const auto plain = [](std::string_view part) {
    return !part.empty() && std::ranges::all_of(part, [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  };
  if (dot < name.size() && plain(name.substr(0, dot)) && plain(name.substr(dot + 1))) return true;
  return name.find('/') == std::string_view::npos && !word.ends_with(".toml");
}

void Config::set(std::string_view assignment) {
  const auto equals = assignment.find('=');
  const auto dot = assignment.substr(0, equals).find('.');
  if (equals == std::string_view::npos || dot == std::string_view::npos)
    throw ConfigError(fmt::format("'{}' is not of the form section.key=value (for example optim.rate=0.1)", assignment));
  const std::string_view section = trimmed(assignment.substr(0, dot));
  const std::string_view key = trimmed(assignment.substr(dot + 1, equals - dot - 1));
  Value value = parse_value(assignment.substr(equals + 1));
  // A text field takes any word literally: run.name=2024 is a name.
  if (at(section).at(key).type() == "text" && !std::holds_alternative<std::string>(value))
    value = std::string(trimmed(assignment.substr(equals + 1)));
  assign(section, key, value);
}

std::string Config::toml() const {
  std::string text;
  for (const Section& section : sections_) {
    if (!text.empty()) text += '\n';
    text += fmt::format("[{}]\n", section.name());
    for (const Field& field : section.fields()) text += fmt::format("{} = {}\n", field.key(), field.toml());
  }
  return text;
}

}  // namespace paceline
