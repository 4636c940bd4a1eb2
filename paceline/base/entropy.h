// Random bytes from the operating system, for secrets. The random numbers of a run come from its seed (random.h).
#pragma once

#include <string>
#include <string_view>

namespace paceline {

std::string random_bytes(std::size_t count);

/// The bytes as text.
std::string hex(std::string_view bytes);

inline constexpr std::size_t kKeyBytes = 16;  // of a job's key: too many to guess

}  // namespace paceline
