// A number with its unit and its source, as in a cluster file: "128 GB/s (spec)". Values are in SI units.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace paceline::perf {

enum class Source { measured, spec, standard };  // standard is written "default": neither measured nor looked up
std::string_view name_of(Source source);

enum class Dimension { flops, bandwidth, bytes, time, factor };  // flop/s, B/s, B, s, 1

struct Quantity {
  double value = 0;
  Source source = Source::standard;
  bool operator==(const Quantity&) const = default;
};

/// Throws ConfigError if the number, unit or source is missing, the unit has another dimension, or the value is not positive. The caller
/// puts the key's name before the message.
Quantity parse_quantity(std::string_view text, Dimension dimension);

/// The text from which parse_quantity returns the same bits.
std::string text_of(const Quantity& quantity, Dimension dimension);

/// An example for messages: "128 GB/s (spec)".
std::string_view example_of(Dimension dimension);

/// "1 host", "8 hosts".
inline std::string counted(std::int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace paceline::perf
