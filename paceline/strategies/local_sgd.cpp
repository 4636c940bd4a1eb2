// Local SGD (Stich, 2019): each worker trains its own replica, and every `period` steps the replicas become their mean.
//   every H steps: w_i ← (1/M) Σ_j w_j
// Post-local SGD (Lin et al., 2020): before epoch `post_local_epoch` they meet at every step, as long as the rate is high.
#include "paceline/strategies/all.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {
namespace {

class LocalSgd final : public Replicas {
 public:
  using Replicas::Replicas;

 private:
  void meet(const step::Point& point) override {
    const bool together = point.epoch < config().post_local_epoch;
    if (together || point.step % config().period == 0) count_bytes(average(parameters()));
  }
};

}  // namespace

std::unique_ptr<step::Strategy> make_local_sgd(const StrategyConfig& config, const step::Context& context) {
  return std::make_unique<LocalSgd>(config, context);
}

}  // namespace paceline::strategies
