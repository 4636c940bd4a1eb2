// Zhang, Gupta, Lian, Liu 2016: the rate of a gradient is divided by its staleness,  w ← w − γ/τ · g,  τ ≥ 1.
#include <algorithm>

#include "paceline/ps/rule.h"

namespace paceline::ps {
namespace {

class StalenessAware final : public UpdateRule {
 public:
  double rate_factor(const Arrival& arrival) const override {
    return 1.0 / static_cast<double>(std::max<std::int64_t>(arrival.staleness, 1));
  }
};

}  // namespace

std::unique_ptr<UpdateRule> make_staleness_aware(const RuleSetup&) { return std::make_unique<StalenessAware>(); }

}  // namespace paceline::ps
