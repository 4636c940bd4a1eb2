// DANA (Hakimi, Barkai, Gabel, Schuster 2019): the server keeps a velocity for each worker and sends every worker the place where the
// parameters will be once all velocities have acted, a Nesterov look-ahead over the whole cluster.
//   push   v_m ← μ v_m + g + λ w;   w ← w − γ v_m                pull   w − γ μ Σ_j v_j
#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {
namespace {

class Dana final : public UpdateRule {
 public:
  explicit Dana(const optim::OptimConfig& optim)
      : momentum_(static_cast<float>(optim.momentum)), decay_(static_cast<float>(optim.weight_decay)) {}

  Needs needs() const override { return {.kept = true, .kept_of_worker = true, .whole_update = true, .sends_own = true}; }
  std::string why_not_steps() const override { return "has a momentum for each worker on the server"; }
  bool adjusts() const override { return true; }

  void adjust(const Slice& s, const Arrival& arrival) override {
    for_each(s.place, s.count,
             DanaStep{s.parameters, s.kept_of_worker, s.kept, s.gradient, arrival.rate, momentum_, s.decay ? decay_ : 0, arrival.scale});
  }
  void forget(const Slice& s) override {
    for_each_parallel(s.place, s.count, Blend{s.kept, s.kept_of_worker, 1, -1});  // Σ without it
    UpdateRule::forget(s);
  }
  void send(const Slice& s, float rate) override {
    for_each_parallel(s.place, s.count, DanaLookAhead{s.out, s.parameters, s.kept, rate * momentum_});
  }

 private:
  float momentum_, decay_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_dana(const RuleSetup& setup) {
  const optim::OptimConfig& optim = setup.optim;
  if (!optim::optimizer_kind(optim.name).heavy_ball || optim.nesterov || optim.clip_norm > 0)
    throw ConfigError("rule 'dana' keeps its own momentum for each worker; use optim.name=sgd without optim.nesterov and optim.clip_norm");
  return std::make_unique<Dana>(optim);
}

}  // namespace paceline::ps
