// A checkpoint's state as bytes, sent by another process to the one that writes the checkpoint.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/step/state.h"

namespace paceline::central {

/// Floats and integers in host memory.
std::string pack_state(std::span<const step::NamedTensor> state);
/// DataError if the bytes are no such state.
std::vector<step::NamedTensor> unpack_state(std::string_view bytes, const std::string& source);

}  // namespace paceline::central
