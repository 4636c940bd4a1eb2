// HeLoCo (Al Asif et al., arXiv 2606.00271): the outer momentum m says where training is going; a push that disagrees is corrected before
// the outer Nesterov step. For each tensor b, with c = cos(Δ_b, m_b) and conf = ‖Δ_b‖ / (‖Δ_b‖ + κ‖m_b‖ + ε):
//   c ≥ c_ok    Δ_b as it is
//   c < 0       Δ_b − β c ‖Δ_b‖ m̂_b,  β = min(k_s (−c) conf, β_max): loses some of the component against m
//   between     turned towards m̂_b at constant length:  u ∝ (1 − λ) Δ̂_b + λ m̂_b,  λ = min(k_d (c_ok − c) conf, 1)  (λ is our reading)
// Each of them is keep · Δ + turn · m, with two numbers of the tensor.
#include <algorithm>
#include <cmath>

#include "paceline/ps/rules/outer_rule.h"

namespace paceline::ps {
namespace {

constexpr double kNoNorm = 1e-12;

class HeLoCo final : public OuterRule {
 public:
  explicit HeLoCo(const PsConfig& config) : OuterRule(config, kOuterRate), config_(config) {}
  Needs needs() const override { return {.kept = true, .whole_update = true, .whole_tensors = true}; }

  void adjust(const Slice& s, const Arrival&) override {
    const auto [keep, turn] = correction(std::sqrt(dot(s.place, s.count, s.gradient, s.gradient)),
                                         std::sqrt(dot(s.place, s.count, s.kept, s.kept)), dot(s.place, s.count, s.gradient, s.kept));
    for_each(s.place, s.count,
             OuterNesterov{s.parameters, s.kept, s.gradient, rate(), momentum(), static_cast<float>(keep), static_cast<float>(turn)});
  }

 private:
  struct Correction {
    double keep = 1, turn = 0;  // of Δ, of m
  };

  Correction correction(double delta, double momentum, double product) const {
    if (!(delta > 0 && momentum > 0)) return {};  // no direction to compare with
    const double c = product / (delta * momentum), confidence = delta / (delta + config_.confidence * momentum + kNoNorm);
    if (c >= config_.keep_cosine) return {};
    if (c < 0) return {1, -std::min(config_.shrink * -c * confidence, config_.most_shrink) * c * delta / momentum};
    const double lambda = std::min(config_.turn * (config_.keep_cosine - c) * confidence, 1.0);
    const double length = std::sqrt((1 - lambda) * (1 - lambda) + lambda * lambda + 2 * lambda * (1 - lambda) * c);
    return {(1 - lambda) / length, lambda * delta / (momentum * length)};
  }

  PsConfig config_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_heloco(const RuleSetup& setup) { return std::make_unique<HeLoCo>(setup.config); }

}  // namespace paceline::ps
