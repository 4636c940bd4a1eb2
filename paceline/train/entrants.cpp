#include "paceline/train/entrants.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/text.h"

namespace paceline::train {
namespace {

/// Keys that `paceline compare` sets itself, and where the values come from.
constexpr std::pair<std::string_view, std::string_view> kKeysSetByCompare[] = {
    {"train.seed", "compare.seeds"}, {"parallel.workers", "compare.workers"}, {"data.held_out", "compare.held_out"}};

/// A label with settings.
struct Labelled {
  std::string label;
  std::vector<std::string> settings;
  bool has_settings = false;
};

/// One key of a grid with its values.
struct GridAxis {
  std::string key;
  std::vector<std::string> values;
};

/// Otherwise two runs with equal numbers would share a folder.
void refuse_twice(const char* key, std::vector<std::int64_t> numbers) {
  std::ranges::sort(numbers);
  if (const auto twice = std::ranges::adjacent_find(numbers); twice != numbers.end())
    throw ConfigError(fmt::format("compare.{} names {} twice; leave one of them out", key, *twice));
}

std::string key_in(const std::string& setting) { return setting.substr(0, setting.find('=')); }

GridAxis axis_of(const std::string& setting, const std::string& where) {
  const std::string key = key_in(setting);
  for (const auto& [own, source] : kKeysSetByCompare)
    if (key == own) throw ConfigError(fmt::format("{}: {} is set by {}; change that instead", where, key, source));
  GridAxis axis{.key = key, .values = {}};
  if (key.size() < setting.size()) axis.values = items_of(std::string_view(setting).substr(key.size() + 1), '|');
  if (axis.values.empty() && setting.find('|') != std::string::npos)
    throw ConfigError(fmt::format("{}: '{}' has no values; write key=value|value, for example optim.rate=0.05|0.1|0.2", where, setting));
  std::vector<std::string> sorted = axis.values;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    throw ConfigError(fmt::format("{}: {} has the value {} twice; leave one of them out", where, key, *twice));
  return axis;
}

bool is_axis(const std::string& setting) { return setting.find('|') != std::string::npos; }

std::vector<Labelled> labelled(const char* key, const std::string& text) {
  std::vector<Labelled> all;
  std::vector<std::string> seen;
  for (const std::string& entry : items_of(text, ';')) {
    const auto colon = entry.find(':');
    Labelled made{.label = std::string(trimmed(entry.substr(0, colon))), .settings = {}, .has_settings = colon != std::string::npos};
    const std::string folder = Contestant{.algorithm = made.label}.folder();
    if (std::ranges::find(seen, folder) != seen.end())
      throw ConfigError(
          fmt::format("compare.{} names '{}' twice; give one of them another label: \"label: section.key=…\"", key, made.label));
    seen.push_back(folder);
    if (made.has_settings) made.settings = items_of(entry.substr(colon + 1), ' ');
    all.push_back(std::move(made));
  }
  return all;
}

std::vector<std::vector<std::string>> points_of(const std::vector<GridAxis>& axes) {
  std::vector<std::vector<std::string>> points(1);
  for (const GridAxis& axis : axes) {
    std::vector<std::vector<std::string>> longer;
    for (const auto& point : points)
      for (const std::string& value : axis.values) longer.push_back(point), longer.back().push_back(axis.key + "=" + value);
    points = std::move(longer);
  }
  return points;
}

/// Single settings stay with the contestant, and those with several values become axes; axes for all algorithms follow.
Entrant entrant_of(const Labelled& algorithm, const std::string& grid) {
  Entrant made{.contestant = {.algorithm = algorithm.label}};
  std::vector<std::string> settings = algorithm.settings;
  if (!algorithm.has_settings) settings = {fmt::format("strategy.name={}", algorithm.label == kSgd ? "asgd" : algorithm.label)};
  const std::string where = fmt::format("compare.algorithms, '{}'", algorithm.label);
  std::vector<GridAxis> axes;
  std::vector<std::string> keys;
  for (const std::string& setting : settings) {
    const GridAxis axis = axis_of(setting, where);
    keys.push_back(axis.key);
    if (is_axis(setting)) axes.push_back(axis);
    else made.contestant.settings.push_back(setting);
  }
  for (const std::string& setting : items_of(grid, ' ')) {
    const GridAxis axis = axis_of(setting, "compare.grid");
    if (axis.values.empty())
      throw ConfigError(
          fmt::format("compare.grid: '{}' has no values; write key=value|value, for example optim.rate=0.05|0.1|0.2", setting));
    if (std::ranges::find(keys, axis.key) == keys.end()) axes.push_back(axis);
  }
  made.points = points_of(axes);
  return made;
}

}  // namespace

std::vector<Entrant> entrants(const CompareConfig& config) {
  const std::vector<Labelled> algorithms = labelled("algorithms", config.algorithms);
  if (algorithms.empty()) throw ConfigError("compare.algorithms is empty; name strategies, for example \"sgd; ssgd; asgd\"");
  if (config.seeds.empty()) throw ConfigError("compare.seeds is empty; name at least one, for example [1]");
  if (config.workers.empty()) throw ConfigError("compare.workers is empty; name at least one number, for example [4]");
  refuse_twice("workers", config.workers), refuse_twice("seeds", config.seeds), refuse_twice("tuning_seeds", config.tuning_seeds);
  for (const std::string& reference : items_of(config.references, ';'))
    if (std::ranges::find(algorithms, reference, &Labelled::label) == algorithms.end())
      throw ConfigError(fmt::format("compare.references: '{}' is not in compare.algorithms; name one of its labels", reference));
  std::vector<Labelled> clocks = labelled("clocks", config.clocks);
  for (const Labelled& clock : clocks)
    for (const std::string& setting : clock.settings)
      if (!setting.starts_with("timing."))
        throw ConfigError(
            fmt::format("compare.clocks, '{}': '{}' is not a setting of [timing]; write timing.key=value", clock.label, setting));
  if (clocks.empty()) clocks.emplace_back();
  std::vector<Entrant> all;
  for (const Labelled& clock : clocks)
    for (const Labelled& algorithm : algorithms) {
      Entrant entrant = entrant_of(algorithm, config.grid);
      entrant.contestant.clock = clock.label, entrant.contestant.clock_settings = clock.settings;
      if (entrant.chooses() && config.tuning_seeds.empty())
        throw ConfigError("compare.tuning_seeds is empty, but there is a grid to choose from; name at least one, for example [101]");
      for (const std::int64_t workers : entrant.contestant.alone() ? std::vector<std::int64_t>{1} : config.workers) {
        entrant.contestant.workers = workers;
        all.push_back(entrant);
      }
    }
  return all;
}

}  // namespace paceline::train
