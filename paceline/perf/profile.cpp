#include "paceline/perf/profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/graph/units.h"

namespace paceline::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<const char*, double UnitSeconds::*> kPasses[] = {{"forward", &UnitSeconds::forward},
                                                                     {"backward", &UnitSeconds::backward},
                                                                     {"input_gradients", &UnitSeconds::input_gradients},
                                                                     {"weight_gradients", &UnitSeconds::weight_gradients},
                                                                     {"evaluation", &UnitSeconds::evaluation}};

Timed at_batch(const UnitProfile& unit, double UnitSeconds::*pass, double samples) {
  const auto& points = unit.seconds;
  if (points.empty()) throw InternalError(fmt::format("unit {} of a profile has no measurements", unit.name));
  const auto least = points.begin(), most = std::prev(points.end());
  Timed timed;
  timed.outside = samples < static_cast<double>(least->first) || samples > static_cast<double>(most->first);
  if (timed.outside)
    timed.note = fmt::format("a batch of {:g} lies outside of what was measured ({} to {})", samples, least->first, most->first);
  if (points.size() == 1) {
    timed.seconds = least->second.*pass * samples / static_cast<double>(least->first);
    return timed;
  }
  auto above = std::ranges::find_if(points, [&](const auto& point) { return samples <= static_cast<double>(point.first); });
  if (above == points.begin()) ++above;
  if (above == points.end()) --above;
  const auto below = std::prev(above);
  const double slope = (above->second.*pass - below->second.*pass) / static_cast<double>(above->first - below->first);
  timed.seconds = std::max(0.0, below->second.*pass + slope * (samples - static_cast<double>(below->first)));
  return timed;
}

const UnitProfile& unit_of(const ProfileTable& table, std::size_t unit) {
  if (unit >= table.units.size())
    throw ConfigError(fmt::format("the profile has {} units, so no unit {}: it belongs to another network", table.units.size(), unit));
  return table.units[unit];
}

/// Reads a profile, and keeps track of the place for error messages.
class ProfileReader {
 public:
  explicit ProfileReader(const std::string& source) : source_(source) {}

  Profile read(const std::string& text) const {
    Json document;
    try {
      document = Json::parse(text);
    } catch (const Json::exception& problem) {  // a syntax error, or a number that exceeds a double
      throw ConfigError(fmt::format("{}: is not JSON ({}); `paceline profile NETWORK` writes one", source_, problem.what()));
    }
    Profile profile{.network = text_at(document, "", "network"), .device = text_at(document, "", "device"), .tables = {}};
    std::size_t index = 0;
    for (const Json& table : list_at(document, "", "tables"))
      profile.tables.push_back(table_of(table, fmt::format("tables[{}].", index++)));
    if (profile.tables.empty()) refuse("tables", "is empty; `paceline profile NETWORK` measures one");
    return profile;
  }

 private:
  [[noreturn]] void refuse(const std::string& place, std::string_view what) const {
    throw ConfigError(fmt::format("{}: {} {}", source_, place, what));
  }
  const Json& member(const Json& of, const std::string& place, const char* key) const {
    if (!of.is_object() || !of.contains(key)) refuse(place + key, "is missing");
    return of[key];
  }
  const Json& list_at(const Json& of, const std::string& place, const char* key) const {
    const Json& value = member(of, place, key);
    if (!value.is_array()) refuse(place + key, "must be a list");
    return value;
  }
  std::string text_at(const Json& of, const std::string& place, const char* key) const {
    const Json& value = member(of, place, key);
    if (!value.is_string()) refuse(place + key, "must be text");
    return value.get<std::string>();
  }
  std::int64_t whole_at(const Json& of, const std::string& place, const char* key, std::int64_t least) const {
    const Json& value = member(of, place, key);
    if (!value.is_number_integer() || value.get<std::int64_t>() < least)
      refuse(place + key, fmt::format("must be a whole number of at least {}, not {}", least, value.dump()));
    return value.get<std::int64_t>();
  }
  double number_at(const Json& of, const std::string& place, const std::string& key) const {
    const Json& value = member(of, place, key.c_str());
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      refuse(place + key, fmt::format("must be a number, not {}", value.dump()));
    return value.get<double>();
  }
  double seconds_at(const Json& of, const std::string& place, const std::string& key) const {
    const Json& value = member(of, place, key.c_str());
    if (!value.is_number() || !(value.get<double>() >= 0) || std::isinf(value.get<double>()))
      refuse(place + key, fmt::format("must be seconds of at least 0, not {}", value.dump()));
    return value.get<double>();
  }

  ProfileTable table_of(const Json& of, const std::string& place) const {
    ProfileTable table;
    try {
      table.precision = precision_named(text_at(of, place, "precision"));
    } catch (const ConfigError& problem) {
      const std::string_view what = problem.what();
      if (what.starts_with(source_)) throw;
      refuse(place + "precision:", what);
    }
    table.workers = whole_at(of, place, "workers", 1);
    table.threads = whole_at(of, place, "threads", 1);
    if (of.contains("jitter")) table.jitter = seconds_at(of, place, "jitter");
    const Json& updates = member(of, place, "update_s");
    for (const auto& [optimizer, value] : updates.items()) table.update_s[optimizer] = seconds_at(updates, place + "update_s.", optimizer);
    std::size_t index = 0;
    if (of.contains("around_s"))
      for (const Json& point : list_at(of, place, "around_s")) {
        const std::string here = fmt::format("{}around_s[{}].", place, index++);
        table.around_s[whole_at(point, here, "samples", 1)] = number_at(point, here, "seconds");
      }
    index = 0;
    for (const Json& unit : list_at(of, place, "units")) table.units.push_back(unit_at(unit, fmt::format("{}units[{}].", place, index++)));
    if (table.units.empty()) refuse(place + "units", "is empty");
    return table;
  }

  UnitProfile unit_at(const Json& of, const std::string& place) const {
    UnitProfile unit{.name = text_at(of, place, "name"), .parameters = whole_at(of, place, "parameters", 0)};
    std::size_t index = 0;
    for (const Json& point : list_at(of, place, "measured")) {
      const std::string here = fmt::format("{}measured[{}].", place, index++);
      UnitSeconds& seconds = unit.seconds[whole_at(point, here, "samples", 1)];
      for (const auto& [key, pass] : kPasses) seconds.*pass = seconds_at(point, here, key);
    }
    if (unit.seconds.empty()) refuse(place + "measured", "is empty");
    return unit;
  }

  const std::string& source_;
};

}  // namespace

const ProfileTable& Profile::table(Precision precision, std::int64_t workers) const {
  const ProfileTable* best = nullptr;
  std::set<std::string_view> known;
  const auto distance = [&](const ProfileTable& of) {  // a table with fewer workers than requested is worse than any with more
    return of.workers >= workers ? std::pair{0, of.workers} : std::pair{1, -of.workers};
  };
  for (const ProfileTable& candidate : tables) {
    known.insert(name_of(candidate.precision));
    if (candidate.precision == precision && (!best || distance(candidate) < distance(*best))) best = &candidate;
  }
  if (!best)
    throw ConfigError(
        fmt::format("the profile of {} has no measurements in {}, only in {}; `paceline profile {} --precision {}` makes them", network,
                    name_of(precision), fmt::join(known, ", "), network, name_of(precision)));
  return *best;
}

std::string Profile::kind() const { return device == "cpu" ? "cpu" : "gpu"; }

void require_device(const Profile& profile, const Cluster& cluster, const std::string& source) {
  const std::string kind = profile.kind();
  if (cluster.device.kind.empty() || cluster.device.kind == kind) return;
  throw ConfigError(fmt::format(
      "{} was measured on a {} (\"{}\"), but the devices of cluster '{}' are of kind \"{}\"; measure it there with `paceline "
      "profile {} train.device={} -o FILE`, or leave the profile out: the roofline of the cluster's device is used then",
      source, kind, profile.device, cluster.name, cluster.device.kind, profile.network, cluster.device.kind == "cpu" ? "cpu" : "cuda"));
}

void require_network(const Profile& profile, const graph::Graph& graph, const std::string& source) {
  const std::string again = fmt::format("measure this one with `paceline profile {} -o FILE`", graph.network());
  if (profile.network != graph.network())
    throw ConfigError(fmt::format("{} is a profile of {}, not of {}; {}", source, profile.network, graph.network(), again));
  const std::vector<graph::Unit> units = graph::units_of(graph);
  std::vector<std::int64_t> parameters(units.size(), 0);
  for (const graph::Parameter& parameter : graph.parameters()) {
    const auto layer = static_cast<std::size_t>(parameter.layer);
    const auto unit = std::ranges::find_if(units, [&](const graph::Unit& each) { return layer < each.last; });
    if (parameter.trainable) parameters[static_cast<std::size_t>(unit - units.begin())] += graph::elements(parameter.shape);
  }
  for (const ProfileTable& table : profile.tables) {
    if (table.units.size() != units.size())
      throw ConfigError(fmt::format("{} is a profile of a {} with {} units, but this one has {}; {}", source, graph.network(),
                                    table.units.size(), units.size(), again));
    for (std::size_t i = 0; i < units.size(); ++i)
      if (table.units[i].parameters != parameters[i])
        throw ConfigError(fmt::format("{} is a profile of another {}: unit {} has {} parameters there and {} here; {}", source,
                                      graph.network(), units[i].name, table.units[i].parameters, parameters[i], again));
  }
}

Timed seconds_of(const ProfileTable& table, std::size_t unit, schedule::Action::Work work, double samples) {
  using Work = schedule::Action::Work;
  const UnitProfile& of = unit_of(table, unit);
  switch (work) {
    case Work::forward: return at_batch(of, &UnitSeconds::forward, samples);
    case Work::backward: return at_batch(of, &UnitSeconds::backward, samples);
    case Work::input_gradients: return at_batch(of, &UnitSeconds::input_gradients, samples);
    case Work::weight_gradients: return at_batch(of, &UnitSeconds::weight_gradients, samples);
    case Work::none:
    case Work::update:
    case Work::encode:
    case Work::decode: break;
  }
  throw InternalError("a profile has the passes of units, not updates or codes");
}

Timed evaluation_seconds(const ProfileTable& table, std::size_t unit, double samples) {
  return at_batch(unit_of(table, unit), &UnitSeconds::evaluation, samples);
}

double update_seconds(const ProfileTable& table, const std::string& optimizer, double elements) {
  const auto found = table.update_s.find(optimizer);
  if (found != table.update_s.end()) return found->second * elements;
  std::vector<std::string_view> known;
  for (const auto& [name, seconds] : table.update_s) known.push_back(name);
  throw ConfigError("the profile: " + unknown_message("measured optimizer", optimizer, known));
}

double around_seconds(const ProfileTable& table, double samples) {
  const auto& points = table.around_s;
  if (points.empty()) return 0;
  const auto above = std::ranges::find_if(points, [&](const auto& point) { return samples <= static_cast<double>(point.first); });
  if (above == points.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == points.end()) return below->second;
  const double way = (samples - static_cast<double>(below->first)) / static_cast<double>(above->first - below->first);
  return below->second + way * (above->second - below->second);
}

Profile read_profile(const std::string& text, const std::string& source) { return ProfileReader(source).read(text); }
Profile find_profile(const std::string& file) { return read_profile(read_file(file), file); }

std::string to_json(const Profile& profile) {
  Json document = {{"network", profile.network}, {"device", profile.device}, {"source", "measured"}, {"tables", Json::array()}};
  for (const ProfileTable& table : profile.tables) {
    Json units = Json::array();
    for (const UnitProfile& unit : table.units) {
      Json points = Json::array();
      for (const auto& [samples, seconds] : unit.seconds) {
        Json& point = points.emplace_back(Json{{"samples", samples}});
        for (const auto& [key, pass] : kPasses) point[key] = seconds.*pass;
      }
      units.push_back({{"name", unit.name}, {"parameters", unit.parameters}, {"measured", points}});
    }
    Json around = Json::array();
    for (const auto& [samples, seconds] : table.around_s) around.push_back({{"samples", samples}, {"seconds", seconds}});
    document["tables"].push_back({{"precision", name_of(table.precision)},
                                  {"workers", table.workers},
                                  {"threads", table.threads},
                                  {"jitter", table.jitter},
                                  {"update_s", table.update_s},
                                  {"around_s", around},
                                  {"units", units}});
  }
  return document.dump(1) + "\n";
}

}  // namespace paceline::perf
