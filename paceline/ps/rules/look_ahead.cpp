// Momentum look-ahead (Ajanthan et al., "Momentum look-ahead for asynchronous distributed low-communication training", 2025): a worker
// begins where the outer momentum will have carried the parameters by the time at which it pushes.
//   push   m ← μ m + Δ;  θ ← θ − η m              pull   θ − η (μ + μ² + … + μ^τ̄) m
// τ̄ outer steps: ps.look_ahead, or the mean staleness so far (sums are exact in a checkpoint's floats up to 2²⁴). The geometric sum is our
// reading: what τ̄ steps without new gradients would add.
#include <cmath>

#include "paceline/base/error.h"
#include "paceline/ps/rules/outer_rule.h"

namespace paceline::ps {
namespace {

constexpr const char* kStaleness = "staleness";

class LookAhead final : public OuterRule {
 public:
  explicit LookAhead(const PsConfig& config) : OuterRule(config, kOuterRate), decay_(config.outer_momentum), steps_(config.look_ahead) {}
  Needs needs() const override { return {.kept = true, .whole_update = true, .sends_own = true}; }

  void observe(const Slice&, const Arrival& arrival) override { sum_ += static_cast<double>(arrival.staleness), ++pushes_; }
  void adjust(const Slice& s, const Arrival&) override {
    for_each(s.place, s.count, OuterHeavyBall{s.parameters, s.kept, s.gradient, rate(), momentum()});
  }
  void send(const Slice& s, float) override {
    const double steps = steps_ > 0 ? steps_ : pushes_ > 0 ? sum_ / pushes_ : 0;
    const double series = decay_ * (1 - std::pow(decay_, steps)) / (1 - decay_);
    for_each_parallel(s.place, s.count, DanaLookAhead{s.out, s.parameters, s.kept, static_cast<float>(rate() * series)});
  }

  std::vector<State> save() const override { return {{kStaleness, {static_cast<float>(sum_), static_cast<float>(pushes_)}}}; }
  void load(std::span<const State> rows) override {
    for (const State& row : rows) {
      if (row.name != kStaleness) continue;
      if (row.values.size() != 2) throw ConfigError("the checkpoint's mean staleness is damaged");
      sum_ = row.values[0], pushes_ = row.values[1];
    }
  }

 private:
  double decay_, steps_;
  double sum_ = 0, pushes_ = 0;  // of staleness
};

}  // namespace

std::unique_ptr<UpdateRule> make_look_ahead(const RuleSetup& setup) { return std::make_unique<LookAhead>(setup.config); }

}  // namespace paceline::ps
