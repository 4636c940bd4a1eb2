// All algorithms, for the table in registry.cpp. Each comes from the file of its name.
#pragma once

#include "paceline/schedule/schedule.h"

namespace paceline::schedule {

Algorithm direct();
Algorithm ring();
Algorithm bucket();
Algorithm tree();
Algorithm butterfly();
Algorithm recursive_doubling();
Algorithm double_binary_tree();
Algorithm hierarchical();
Algorithm torus2d();

}  // namespace paceline::schedule
