// DiLoCo (Douillard et al., 2023): the workers' progress over `period` steps is the gradient of an outer Nesterov step.
//   every H steps: Δ = θ − (1/M) Σ_i w_i;  v ← μ v + Δ;  θ ← θ − η (Δ + μ v);  w_i ← θ
// The inner optimizer is the recipe's; its state stays with the worker.
#include <ATen/ATen.h>

#include "paceline/strategies/all.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {
namespace {

class DiLoCo final : public Replicas {
 public:
  DiLoCo(const StrategyConfig& config, const step::Context& context) : Replicas(config, context) { prepare(); }

 private:
  void prepare() final {
    outer_ = parameters().clone();
    velocity_ = at::zeros_like(outer_);
  }

  void meet(const step::Point& point) override {
    if (point.step % config().period != 0) return;
    at::Tensor replica = parameters();
    count_bytes(average(replica));
    const at::Tensor progress = outer_ - replica;
    velocity_.mul_(config().outer_momentum).add_(progress);
    outer_.sub_(progress.add(velocity_, config().outer_momentum), config().outer_rate);
    replica.copy_(outer_);
  }

  std::vector<step::NamedTensor> memory() override { return {{"outer", outer_}, {"velocity", velocity_}}; }

  at::Tensor outer_, velocity_;  // [length]; alike on all workers
};

}  // namespace

std::unique_ptr<step::Strategy> make_diloco(const StrategyConfig& config, const step::Context& context) {
  return std::make_unique<DiLoCo>(config, context);
}

}  // namespace paceline::strategies
