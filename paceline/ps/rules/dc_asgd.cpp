// Delay-compensated ASGD (Zheng et al. 2017): the first-order term of the gradient's Taylor expansion, with g gᵀ in place of the Hessian
// and only its diagonal.
//   constant   g + λ₀ g⊙g⊙(w − w_bak)
//   adaptive   MS ← m·MS + (1−m) g²,  λ = λ₀ / √(MS + ε)          MS of each worker, as in the authors' code
// w_bak is what the worker had pulled. The authors' code starts it at zero, which makes the first push wrong; here it is what was sent.
// `dc_staleness_aware` divides the rate by the staleness as well (staleness_aware.cpp): the Taylor expansion is accurate for small
// distances; for large ones, a shorter step does less harm.
#include <algorithm>

#include "paceline/ps/config.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {
namespace {

constexpr float kLeastRoot = 1e-7f;

class DcAsgd final : public UpdateRule {
 public:
  explicit DcAsgd(const PsConfig& config, bool slows = false)
      : adaptive_(config.compensation == "adaptive"), slows_(slows), decay_(static_cast<float>(config.dc_decay)) {
    lambda_ = static_cast<float>(config.dc_lambda > 0 ? config.dc_lambda : adaptive_ ? 2.0 : 0.04);
  }

  Needs needs() const override { return {.pulled = true, .kept_of_worker = adaptive_}; }
  std::string why_not_steps() const override { return "squares gradients to estimate their curvature"; }
  bool adjusts() const override { return true; }
  double rate_factor(const Arrival& arrival) const override {
    return slows_ ? 1.0 / static_cast<double>(std::max<std::int64_t>(arrival.staleness, 1)) : 1;
  }

  void adjust(const Slice& s, const Arrival&) override {
    if (adaptive_)
      for_each(
          s.place, s.count,
          AdaptiveDelayCompensation{s.out, s.gradient, s.parameters, s.pulled, s.kept_of_worker, lambda_, decay_, 1 - decay_, kLeastRoot});
    else for_each(s.place, s.count, DelayCompensation{s.out, s.gradient, s.parameters, s.pulled, lambda_});
  }

 private:
  bool adaptive_, slows_;
  float decay_, lambda_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_dc_asgd(const RuleSetup& setup) { return std::make_unique<DcAsgd>(setup.config); }
std::unique_ptr<UpdateRule> make_dc_staleness_aware(const RuleSetup& setup) { return std::make_unique<DcAsgd>(setup.config, true); }

}  // namespace paceline::ps
