// Gap-aware ASGD (Barkai, Hakimi, Schuster 2020): an element of a gradient is divided by how far its parameter has moved meanwhile,
// measured in usual steps:  g / (1 + |w − w_bak| / C),  C the running RMS of the steps that the server made (decay γ, corrected for its
// start).
#include <cmath>

#include "paceline/ps/config.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {
namespace {

constexpr float kLeastGap = 1e-8f;

class GapAware final : public UpdateRule {
 public:
  explicit GapAware(const PsConfig& config) : decay_(config.gap_decay) {}

  Needs needs() const override { return {.pulled = true, .kept = true}; }
  bool adjusts() const override { return true; }

  void adjust(const Slice& s, const Arrival& arrival) override {
    const double seen = 1 - std::pow(decay_, static_cast<double>(arrival.updates));
    const auto correction = static_cast<float>(seen > 0 ? 1 / seen : 0);
    for_each(s.place, s.count, GapPenalty{s.out, s.gradient, s.parameters, s.pulled, s.kept, correction, kLeastGap});
  }
  void learn(const Slice& s, const Arrival&) override {
    for_each(s.place, s.count, StepSize{s.kept, s.parameters, s.pulled, static_cast<float>(decay_), static_cast<float>(1 - decay_)});
  }

 private:
  double decay_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_gap_aware(const RuleSetup& setup) { return std::make_unique<GapAware>(setup.config); }

}  // namespace paceline::ps
