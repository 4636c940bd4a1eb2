// Cosine-gated Adam decay (Shah, Sun, arXiv 2605.09126): Adam as the outer optimizer, whose moments get σ(τ) Δ.
//   σ(τ) = γ(τ) e^(−ατ)      cgad: γ(τ) = (1 + cos(π τ / τ_c)) / 2 up to the cutoff τ_c, 0 beyond it (our reading of "a cosine gate")
//                            adam_decay: γ = 1
#include <algorithm>
#include <cmath>
#include <numbers>

#include "paceline/ps/rules/outer_rule.h"

namespace paceline::ps {
namespace {

constexpr float kAdamEpsilon = 1e-8f;
constexpr double kCutoffOfEachWorker = 4;

class AgedAdam final : public OuterRule {
 public:
  AgedAdam(const PsConfig& config, double cutoff)
      : OuterRule(config, kOuterAdamRate),
        beta1_(config.outer_momentum),
        beta2_(config.outer_beta2),
        decay_(config.age_decay),
        cutoff_(cutoff) {}
  Needs needs() const override { return {.kept = true, .kept_second = true, .whole_update = true}; }

  void adjust(const Slice& s, const Arrival& arrival) override {
    const auto t = static_cast<double>(arrival.updates + 1);
    const auto corrected = static_cast<float>(rate() / (1 - std::pow(beta1_, t)));
    const auto root = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2_, t)));
    for_each(s.place, s.count,
             OuterAdam{s.parameters, s.kept, s.kept_second, s.gradient, weight(arrival.staleness), corrected, static_cast<float>(beta1_),
                       static_cast<float>(1 - beta1_), static_cast<float>(beta2_), static_cast<float>(1 - beta2_), root, kAdamEpsilon});
  }

 private:
  /// σ
  float weight(std::int64_t staleness) const {
    const auto age = static_cast<double>(staleness);
    const double gate = cutoff_ > 0 ? (1 + std::cos(std::numbers::pi * std::min(age / cutoff_, 1.0))) / 2 : 1;
    return static_cast<float>(gate * std::exp(-decay_ * age));
  }

  double beta1_, beta2_, decay_, cutoff_;  // cutoff 0: no gate
};

}  // namespace

std::unique_ptr<UpdateRule> make_adam_decay(const RuleSetup& setup) { return std::make_unique<AgedAdam>(setup.config, 0); }

std::unique_ptr<UpdateRule> make_cgad(const RuleSetup& setup) {
  const double usual = kCutoffOfEachWorker * setup.workers;
  return std::make_unique<AgedAdam>(setup.config, setup.config.age_cutoff > 0 ? setup.config.age_cutoff : usual);
}

}  // namespace paceline::ps
