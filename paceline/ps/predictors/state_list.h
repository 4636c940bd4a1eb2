// The state of a predictor as one list of floats: the predictor lists its parts once, for saving and loading alike.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace paceline::ps {

using StateList = std::vector<std::span<float>>;

std::size_t length_of(const StateList& parts);
std::vector<float> joined(const StateList& parts);
/// The inverse of joined().
void fill(const StateList& parts, std::span<const float> state);

/// ConfigError unless a saved state has the length that the current settings need; `what` begins the message.
void check_length(std::span<const float> state, std::size_t expected, std::string_view what);

}  // namespace paceline::ps
