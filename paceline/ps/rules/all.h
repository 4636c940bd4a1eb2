// The factories of rules/, for registry.cpp.
#pragma once

#include "paceline/ps/rule.h"

namespace paceline::ps {

#define PACELINE_RULE(name) std::unique_ptr<UpdateRule> make_##name(const RuleSetup&)
PACELINE_RULE(asgd);
PACELINE_RULE(dc_asgd);
PACELINE_RULE(lc_asgd);
PACELINE_RULE(staleness_aware);
PACELINE_RULE(gap_aware);
PACELINE_RULE(dana);
PACELINE_RULE(downpour);
PACELINE_RULE(easgd);
#undef PACELINE_RULE

}  // namespace paceline::ps
