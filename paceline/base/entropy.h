// Chance from the system, for what nobody may guess. What a run draws comes from its seed (random.h).
#pragma once

#include <string>

namespace paceline {

std::string random_bytes(std::size_t count);

}  // namespace paceline
