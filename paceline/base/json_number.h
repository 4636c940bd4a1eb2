// Whole numbers from JSON. nlohmann's own conversions cast any number: a fraction, a negative one, or 1e300, which is undefined
// behaviour.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace paceline {

/// A whole number from 0 to `most`; nullopt for any other value.
inline std::optional<std::int64_t> whole_number(const nlohmann::json& value, std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto number = value.get<std::uint64_t>();
  return number <= static_cast<std::uint64_t>(most) ? std::optional(static_cast<std::int64_t>(number)) : std::nullopt;
}

}  // namespace paceline
