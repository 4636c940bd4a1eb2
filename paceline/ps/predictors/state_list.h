// The state of a predictor as one list of floats: it names its parts once, and both directions follow from that.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace paceline::ps {

using StateList = std::vector<std::span<float>>;

std::size_t length_of(const StateList& parts);
std::vector<float> joined(const StateList& parts);
/// The opposite of joined().
void fill(const StateList& parts, std::span<const float> state);

/// ConfigError unless a saved state has the length that the present settings need; `what` begins the message.
void check_length(std::span<const float> state, std::size_t expected, std::string_view what);

}  // namespace paceline::ps
