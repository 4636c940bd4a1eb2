#include "paceline/perf/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "paceline/base/config.h"
#include "paceline/base/error.h"
#include "paceline/base/suggest.h"
#include "paceline/base/text.h"

namespace paceline::perf {
namespace {

struct Unit {
  Dimension dimension;
  std::string_view name;
  double factor;
};

// Within a dimension, from large to small: text_of takes the first unit that gives a number of at least 1. Bits come after bytes.
constexpr Unit kUnits[] = {
    {Dimension::flops, "Pflop/s", 1e15},
    {Dimension::flops, "Tflop/s", 1e12},
    {Dimension::flops, "Gflop/s", 1e9},
    {Dimension::flops, "Mflop/s", 1e6},
    {Dimension::flops, "flop/s", 1},
    {Dimension::bandwidth, "TB/s", 1e12},
    {Dimension::bandwidth, "GB/s", 1e9},
    {Dimension::bandwidth, "MB/s", 1e6},
    {Dimension::bandwidth, "kB/s", 1e3},
    {Dimension::bandwidth, "B/s", 1},
    {Dimension::bandwidth, "Tb/s", 1e12 / 8},
    {Dimension::bandwidth, "Gb/s", 1e9 / 8},
    {Dimension::bandwidth, "Mb/s", 1e6 / 8},
    {Dimension::bytes, "TB", 1e12},
    {Dimension::bytes, "GB", 1e9},
    {Dimension::bytes, "MB", 1e6},
    {Dimension::bytes, "kB", 1e3},
    {Dimension::bytes, "B", 1},
    {Dimension::bytes, "TiB", 1099511627776.0},
    {Dimension::bytes, "GiB", 1073741824.0},
    {Dimension::bytes, "MiB", 1048576.0},
    {Dimension::bytes, "KiB", 1024.0},
    {Dimension::time, "s", 1},
    {Dimension::time, "ms", 1e-3},
    {Dimension::time, "us", 1e-6},
    {Dimension::time, "ns", 1e-9},
    {Dimension::factor, "x", 1},
};
constexpr Source kSources[] = {Source::measured, Source::spec, Source::standard};

const Unit& unit_named(std::string_view name, Dimension dimension) {
  std::vector<std::string_view> names;
  for (const Unit& unit : kUnits) {
    if (unit.dimension != dimension) continue;
    if (unit.name == name) return unit;
    names.push_back(unit.name);
  }
  throw ConfigError(": " + unknown_message("unit", name, names));
}

Source source_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Source source : kSources) {
    if (name_of(source) == name) return source;
    names.push_back(name_of(source));
  }
  throw ConfigError(": " + unknown_message("source", name, names));
}

/// Divides instead of multiplying by a factor below 1, so that "0.5 us" is the double nearest to 0.5e-6.
double scaled(double number, double factor) { return factor < 1 ? number / std::round(1 / factor) : number * factor; }

}  // namespace

std::string_view name_of(Source source) {
  static constexpr std::string_view kNames[] = {"measured", "spec", "default"};
  return kNames[static_cast<int>(source)];
}

std::string_view example_of(Dimension dimension) {
  static constexpr std::string_view kExamples[] = {"8960 Gflop/s (spec)", "128 GB/s (spec)", "256 GB (spec)", "0.5 us (spec)",
                                                   "1.5 x (measured)"};
  return kExamples[static_cast<int>(dimension)];
}

Quantity parse_quantity(std::string_view text, Dimension dimension) {
  const std::string wanted = fmt::format("; write it like \"{}\"", example_of(dimension));
  const std::string_view all = trimmed(text);
  const auto number_end = std::min(all.find_first_not_of("+-.0123456789eE_"), all.size());
  const auto open = std::min(all.find('('), all.size());
  const Value value = parse_value(all.substr(0, number_end));
  const auto* number = std::get_if<double>(&value);
  const auto* integer = std::get_if<std::int64_t>(&value);
  if (!number && !integer) throw ConfigError(fmt::format("has no number before its unit: \"{}\"{}", text, wanted));
  const std::string_view unit = number_end < open ? trimmed(all.substr(number_end, open - number_end)) : std::string_view{};
  if (unit.empty()) throw ConfigError(fmt::format("has no unit: \"{}\"{}", text, wanted));
  const double factor = unit_named(unit, dimension).factor, size = scaled(number ? *number : static_cast<double>(*integer), factor);
  if (!(size > 0) || std::isinf(size)) throw ConfigError(fmt::format("must be above 0 and finite, not \"{}\"", text));
  if (open == all.size() || all.back() != ')')
    throw ConfigError(fmt::format("does not say whether it is (measured), (spec) or (default): \"{}\"{}", text, wanted));
  return {size, source_named(trimmed(all.substr(open + 1, all.size() - open - 2)))};
}

std::string text_of(const Quantity& quantity, Dimension dimension) {
  const Unit* smallest = nullptr;
  for (const Unit& unit : kUnits) {
    if (unit.dimension != dimension || unit.name == "Tb/s" || unit.name == "TiB") continue;
    if (smallest && unit.factor >= smallest->factor) break;  // bits and powers of two
    smallest = &unit;
    const double number = unit.factor < 1 ? quantity.value * std::round(1 / unit.factor) : quantity.value / unit.factor;
    const double printed = std::round(number * 1e6) / 1e6;  // 0.5e-6 · 1e6 need not be 0.5
    const double shown = scaled(printed, unit.factor) == quantity.value ? printed : number;
    if (number >= 1 && scaled(shown, unit.factor) == quantity.value)
      return fmt::format("{} {} ({})", shown, unit.name, name_of(quantity.source));
  }
  const auto& base = *std::ranges::find_if(kUnits, [&](const Unit& unit) { return unit.dimension == dimension && unit.factor == 1; });
  return fmt::format("{} {} ({})", quantity.value, base.name, name_of(quantity.source));
}

}  // namespace paceline::perf
