#include "paceline/ps/predictors/state_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "paceline/base/error.h"

namespace paceline::ps {

std::size_t length_of(const StateList& parts) {
  std::size_t length = 0;
  for (const std::span<float>& part : parts) length += part.size();
  return length;
}

std::vector<float> joined(const StateList& parts) {
  std::vector<float> state;
  state.reserve(length_of(parts));
  for (const std::span<float>& part : parts) state.insert(state.end(), part.begin(), part.end());
  return state;
}

void fill(const StateList& parts, std::span<const float> state) {
  for (const std::span<float>& part : parts) {
    std::copy_n(state.begin(), part.size(), part.begin());
    state = state.subspan(part.size());
  }
}

void check_length(std::span<const float> state, std::size_t expected, std::string_view what) {
  if (state.size() != expected)
    throw ConfigError(fmt::format(
        "{}: the saved state has {} numbers where these settings need {}; resume with the predictor_layers and predictor_hidden it was "
        "saved with",
        what, state.size(), expected));
}

}  // namespace paceline::ps
