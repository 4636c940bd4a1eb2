// ASGD whose rate stays below the limit that its delay allows: on a quadratic of curvature h, a step with gradients k updates old is stable
// up to
//   γ < 2 sin(π / (4k + 2)) / h
// so the rate of a push is the smaller of the schedule's and ps.stability_margin times that limit. k is the running mean of the staleness.
// h is estimated from successive pushes, Σ⟨g − g', w − w'⟩ / Σ‖w − w'‖² with the points w that the workers had pulled, both sums being
// running means with decay ps.curvature_decay. Noise that two gradients do not share averages out of the numerator.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "paceline/base/error.h"
#include "paceline/ps/config.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {
namespace {

constexpr const char* kMeans = "curvature";

class StabilityCap final : public UpdateRule {
 public:
  explicit StabilityCap(const PsConfig& config) : decay_(config.curvature_decay), margin_(config.stability_margin) {}

  Needs needs() const override { return {.pulled = true, .kept = true, .kept_second = true, .whole_range = true}; }
  std::string why_not_steps() const override { return "compares gradients, which steps have a rate and a momentum in"; }

  void observe(const Slice& s, const Arrival& arrival) override {
    if (seen_ > 0) {
      for_each_parallel(s.place, s.count, Blend{s.kept, s.gradient, -1, 1});
      for_each_parallel(s.place, s.count, Blend{s.kept_second, s.pulled, -1, 1});
      blend(product_, dot(s.place, s.count, s.kept, s.kept_second));
      blend(square_, dot(s.place, s.count, s.kept_second, s.kept_second));
    }
    for_each_parallel(s.place, s.count, Copy{s.kept, s.gradient});
    for_each_parallel(s.place, s.count, Copy{s.kept_second, s.pulled});
    if (seen_ > 0) blend(staleness_, static_cast<double>(arrival.staleness));
    else staleness_ = static_cast<float>(arrival.staleness);
    seen_ = 1;
  }

  double rate_factor(const Arrival& arrival) const override {
    const double curvature = square_ > 0 ? static_cast<double>(product_) / square_ : 0;
    if (!(curvature > 0 && arrival.rate > 0)) return 1;
    const double limit = 2 * std::sin(std::numbers::pi / (4 * staleness_ + 2)) / curvature;
    return std::min(1.0, margin_ * limit / arrival.rate);
  }

  std::vector<State> save() const override { return {{kMeans, {product_, square_, staleness_, seen_}}}; }
  void load(std::span<const State> rows) override {
    for (const State& row : rows) {
      if (row.name != kMeans) continue;
      if (row.values.size() != 4) throw ConfigError("the checkpoint's estimate of the curvature is damaged");
      product_ = row.values[0], square_ = row.values[1], staleness_ = row.values[2], seen_ = row.values[3];
    }
  }

 private:
  void blend(float& mean, double value) const { mean = static_cast<float>(decay_ * mean + (1 - decay_) * value); }

  double decay_, margin_;
  // Floats, as a checkpoint has them: a resumed run continues with the same bits.
  float product_ = 0, square_ = 0;  // running means of ⟨Δg, Δw⟩ and ‖Δw‖²; their common start cancels
  float staleness_ = 0, seen_ = 0;  // its running mean; 1 once there has been a push
};

}  // namespace

std::unique_ptr<UpdateRule> make_stability_cap(const RuleSetup& setup) { return std::make_unique<StabilityCap>(setup.config); }

}  // namespace paceline::ps
