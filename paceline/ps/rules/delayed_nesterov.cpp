// Asynchronous Nesterov, and delayed Nesterov (Liu et al., "Asynchronous local-SGD training for language modeling", arXiv 2401.09135): the
// momentum waits for N pushes, so that one worker's stale Δ cannot swing it.
//   S ← S + Δ     every N-th push: m ← β m + S/N;  θ ← θ − η [(1 − cN + c) β m + Δ/N];  S ← 0      others: θ ← θ − η [c β m + Δ/N]
#include "paceline/ps/rules/outer_rule.h"

namespace paceline::ps {
namespace {

class AsyncNesterov final : public OuterRule {
 public:
  explicit AsyncNesterov(const PsConfig& config) : OuterRule(config, kOuterRate) {}
  Needs needs() const override { return {.kept = true, .whole_update = true}; }
  void adjust(const Slice& s, const Arrival&) override {
    for_each(s.place, s.count, OuterNesterov{s.parameters, s.kept, s.gradient, rate(), momentum(), 1, 0});
  }
};

class Delayed final : public OuterRule {
 public:
  explicit Delayed(const PsConfig& config) : OuterRule(config, kOuterRate), every_(config.momentum_every), share_(config.momentum_share) {}
  Needs needs() const override { return {.kept = true, .kept_second = true, .whole_update = true}; }

  void adjust(const Slice& s, const Arrival& arrival) override {
    const double n = static_cast<double>(every_);
    const auto part = static_cast<float>(1 / n);
    if ((arrival.updates + 1) % every_ != 0)
      return for_each(
          s.place, s.count,
          DelayedNesterov{s.parameters, s.kept, s.kept_second, s.gradient, rate(), momentum(), part, static_cast<float>(share_)});
    const auto activation = static_cast<float>(1 - share_ * n + share_);
    for_each(s.place, s.count, DelayedNesterovTurn{s.parameters, s.kept, s.kept_second, s.gradient, rate(), momentum(), part, activation});
  }

 private:
  std::int64_t every_;
  double share_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_async_nesterov(const RuleSetup& setup) { return std::make_unique<AsyncNesterov>(setup.config); }
std::unique_ptr<UpdateRule> make_delayed_nesterov(const RuleSetup& setup) { return std::make_unique<Delayed>(setup.config); }

}  // namespace paceline::ps
