// Applies every gradient as it arrives:  w ← w − γ g(w_old).  With a consistency that gathers (bsp, k_*) the gradient is the mean of the
// group: SSGD.
#include "paceline/ps/rule.h"

namespace paceline::ps {

std::unique_ptr<UpdateRule> make_asgd(const RuleSetup&) { return std::make_unique<UpdateRule>(); }

}  // namespace paceline::ps
