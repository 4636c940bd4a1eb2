// Elastic averaging SGD (Zhang, Choromanska, LeCun, 2015), as DeepSpark uses it: workers and a centre attract each other.
//   every τ steps: e_i = α (x_i − x̃);  x_i ← x_i − e_i;  x̃ ← x̃ + Σ_i e_i
// All workers keep the centre, which changes alike on all of them: Σ_i e_i is an allreduce. What is evaluated is the centre.
#include <ATen/ATen.h>

#include "paceline/data_parallel/buffer.h"
#include "paceline/strategies/all.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {
namespace {

class Easgd final : public Replicas {
 public:
  Easgd(const StrategyConfig& config, const step::Context& context) : Replicas(config, context) { prepare(); }

 private:
  void prepare() final {
    centre_ = parameters().clone();
    pull_ = data_parallel::allocate_from(context().comm)(parameters().numel(), parameters().options());
  }

  void meet(const step::Point& point) override {
    if (point.step % config().period != 0) return;
    const double workers = context().workers(), alpha = config().elasticity > 0 ? config().elasticity : 0.9 / workers;
    at::Tensor replica = parameters();
    at::sub_out(pull_, replica, centre_);
    replica.add_(pull_, -alpha);
    count_bytes(average(pull_));
    centre_.add_(pull_, alpha * workers);
  }

  void agree_on_parameters() override { at::Tensor(parameters()).copy_(centre_); }
  std::vector<step::NamedTensor> memory() override { return {{"centre", centre_}}; }

  at::Tensor centre_, pull_;  // [length]
};

}  // namespace

std::unique_ptr<step::Strategy> make_easgd(const StrategyConfig& config, const step::Context& context) {
  return std::make_unique<Easgd>(config, context);
}

}  // namespace paceline::strategies
