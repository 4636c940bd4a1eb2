// The slides' conclusions, each checked against the rows of a study.
#pragma once

#include "paceline/perf/ccgrid2019.h"

namespace paceline::perf {

std::vector<Conclusion> conclusions_of(const Study& study);

}  // namespace paceline::perf
