// Gap-aware ASGD (Barkai, Hakimi, Schuster 2020): an element of a gradient is divided by how far its parameter has moved meanwhile,
// measured in usual steps:  g / (1 + |w − w_bak| / C),  C a running RMS of the steps that the server made (decay γ, with bias correction).
//   ps.gap_rate=current   of the steps as they were made, each with its own rate: when the rate falls, old and longer steps stay in the
//                         mean for a while, and the penalty fades
//   ps.gap_rate=maximal   of the steps divided by their rates, times the largest rate so far: the published code's, where the penalty of a
//                         gap in units of the current step fades in proportion to the rate
#include <algorithm>
#include <cmath>

#include "paceline/ps/config.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {
namespace {

constexpr float kLeastGap = 1e-8f;
constexpr const char* kLargest = "largest_rate";

class GapAware final : public UpdateRule {
 public:
  explicit GapAware(const PsConfig& config) : decay_(config.gap_decay), maximal_(config.gap_rate == "maximal") {}

  Needs needs() const override { return {.pulled = true, .kept = true}; }
  std::string why_not_steps() const override { return maximal_ ? "has ps.gap_rate=maximal, and steps do not say their rates" : ""; }
  bool adjusts() const override { return true; }
  void observe(const Slice&, const Arrival& arrival) override { largest_ = std::max(largest_, arrival.rate); }

  void adjust(const Slice& s, const Arrival& arrival) override {
    const double seen = 1 - std::pow(decay_, static_cast<double>(arrival.updates));
    const auto correction = static_cast<float>(seen > 0 ? 1 / seen : 0);
    for_each(s.place, s.count,
             GapPenalty{s.out, s.gradient, s.parameters, s.pulled, s.kept, correction, maximal_ ? largest_ : 1, kLeastGap});
  }
  void learn(const Slice& s, const Arrival& arrival) override {
    const float inverse_rate = !maximal_ ? 1 : arrival.rate > 0 ? 1 / arrival.rate : 0;
    for_each(s.place, s.count,
             StepSize{s.kept, s.parameters, s.pulled, static_cast<float>(decay_), static_cast<float>(1 - decay_), inverse_rate});
  }
  std::vector<State> save() const override { return maximal_ ? std::vector<State>{{kLargest, {largest_}}} : std::vector<State>(); }
  void load(std::span<const State> rows) override {
    for (const State& row : rows)
      if (row.name == kLargest && row.values.size() == 1) largest_ = row.values[0];
  }

 private:
  double decay_;
  bool maximal_;
  float largest_ = 0;  // rate so far
};

}  // namespace

std::unique_ptr<UpdateRule> make_gap_aware(const RuleSetup& setup) { return std::make_unique<GapAware>(setup.config); }

}  // namespace paceline::ps
