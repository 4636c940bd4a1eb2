// Chance from the system, for what nobody may guess. What a run draws comes from its seed (random.h).
#pragma once

#include <string>
#include <string_view>

namespace paceline {

std::string random_bytes(std::size_t count);

/// As text.
std::string hex(std::string_view bytes);

inline constexpr std::size_t kKeyBytes = 16;  // of a job's key: more than anybody can try

}  // namespace paceline
