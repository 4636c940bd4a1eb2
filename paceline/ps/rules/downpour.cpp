// Downpour (Dean et al. 2012): a worker makes n steps of its own between two visits and pushes the sum of their gradients; n = 1 is ASGD.
// The server's weights decay n times as much as with one gradient, so that λ means the same for every n.
#include "paceline/ps/config.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {
namespace {

class Downpour final : public UpdateRule {
 public:
  explicit Downpour(std::int64_t period) : period_(period) {}
  std::int64_t period() const override { return period_; }
  std::int64_t gradients_in_a_push() const override { return period_; }

 private:
  std::int64_t period_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_downpour(const RuleSetup& setup) { return std::make_unique<Downpour>(setup.config.period); }

}  // namespace paceline::ps
