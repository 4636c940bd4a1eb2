// Typed configuration. Each component owns a struct with defaults and describes its fields once; a Config binds the structs of
// a recipe to section names and fills them from TOML files and from `section.key=value`, in the order of the calls.
//
//   struct OptimConfig {
//     double rate = 0.1;
//     void describe(Section& s) { s.field("rate", rate, "learning rate").at_least(0); }
//   };
//
// Nothing is ignored silently: the error for an unknown section or key suggests the nearest known one, and the error for a value of the
// wrong type or outside its range says what was expected. The resolved recipe and the docs' reference come from the same descriptions.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace paceline {

/// A value in a file or on the command line.
using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<double>>;

class Field {
 public:
  using Target = std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::int64_t>*, std::vector<double>*>;

  Field(std::string key, Target target, std::string help) : key_(std::move(key)), help_(std::move(help)), target_(target) {}

  Field& at_least(double least) { return least_ = least, *this; }
  Field& above(double bound) { return least_ = bound, least_excluded_ = true, *this; }
  Field& at_most(double most) { return most_ = most, *this; }
  Field& one_of(std::vector<std::string_view> choices) { return choices_ = std::move(choices), *this; }

  const std::string& key() const { return key_; }
  const std::string& help() const { return help_; }
  const std::vector<std::string_view>& choices() const { return choices_; }

  std::string type() const;         ///< "integer", "list of numbers", …
  std::string toml() const;         ///< the current value as TOML writes it
  std::string allowed() const;      ///< "at least 1", "one of a, b"; empty if anything goes
  Value value() const;              ///< the current one
  void assign(const Value& value);  ///< throws ConfigError, whose message is to follow the key's name

 private:
  void check(double number) const;

  std::string key_, help_;
  Target target_;
  double least_ = -std::numeric_limits<double>::infinity();
  double most_ = std::numeric_limits<double>::infinity();
  bool least_excluded_ = false;
  std::vector<std::string_view> choices_;
};

class Section {
 public:
  Section(std::string name, std::string help) : name_(std::move(name)), help_(std::move(help)) {}

  template <class T>
  Field& field(std::string key, T& target, std::string help) {
    return fields_.emplace_back(std::move(key), Field::Target(&target), std::move(help));
  }

  const std::string& name() const { return name_; }
  const std::string& help() const { return help_; }
  const std::deque<Field>& fields() const { return fields_; }
  Field& at(std::string_view key);  ///< throws ConfigError that names the nearest key

 private:
  std::string name_, help_;
  std::deque<Field> fields_;  // a deque: references stay valid while fields are added
};

class Config {
 public:
  /// Binds `component` (anything with describe(Section&)) under a section's name. It must outlive the Config.
  template <class Component>
  void bind(std::string name, std::string help, Component& component) {
    component.describe(sections_.emplace_back(std::move(name), std::move(help)));
  }

  void load(const std::filesystem::path& toml_file);
  void load_text(const std::string& toml, const std::string& source);  ///< `source`: its name in error messages
  void set(std::string_view assignment);                               ///< "section.key=value"; a value need not be quoted

  void check();  ///< validates values that were written directly into the structs: ConfigError if assign() would have thrown

  std::string toml() const;  ///< the whole recipe, every key with its current value
  const std::deque<Section>& sections() const { return sections_; }

 private:
  Section& at(std::string_view section);
  void assign(std::string_view section, std::string_view key, const Value& value);

  std::deque<Section> sections_;
};

/// Whether a word of the command line is meant as section.key=value, and not as a file name, which may contain an = too. A word that is
/// neither counts as the former, whose error message says how to write it.
bool is_assignment(std::string_view word);

/// Reads a value as TOML writes it (true, 3, 1e-4, "text", [1, 2]); anything else is literal text.
Value parse_value(std::string_view text);

}  // namespace paceline
