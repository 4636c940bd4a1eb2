// State of a checkpoint as bytes, on its way from another process to the one that writes it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/step/state.h"

namespace paceline::central {

/// Floats and whole numbers in host memory.
std::string pack_state(std::span<const step::NamedTensor> state);
/// DataError if the bytes are not such a state.
std::vector<step::NamedTensor> unpack_state(std::string_view bytes, const std::string& source);

}  // namespace paceline::central
