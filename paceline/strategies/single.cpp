// One worker: forward, backward, update. The yardstick for every other strategy, and the step that a GPU records in a CUDA graph.
#include <optional>

#include "paceline/base/error.h"
#include "paceline/strategies/all.h"
#include "paceline/strategies/local_pass.h"
#include "paceline/strategies/recorded_step.h"
#include "paceline/strategies/updater.h"

namespace paceline::strategies {
namespace {

class Single final : public Strategy {
 public:
  void setup(const Context& context) override {
    if (context.workers() > 1)
      throw ConfigError("strategy 'single' has one worker; use strategy.name=allreduce (`paceline list` names the others)");
    context_.emplace(context);
    pass_.emplace(*context_);
    updater_.emplace(context.module.arena(), context.optim);
    recorded_.emplace(context.module.device(), context.record_steps);
  }

  StepResult step(const Batch& batch, const Point& point) override {
    const PhaseSpan span(*context_, "step");
    pass_->begin_step(point.step);
    updater_->begin_step({.rate = static_cast<float>(point.rate), .step = point.step});
    recorded_->run(batch, [&] {
      sums_ = pass_->run(batch, batch.weight(1));
      const PhaseSpan update(*context_, "update");
      updater_->update_all();
      context_->module.refresh();
    });
    return {sums_, batch.targets.numel()};
  }

  std::vector<NamedTensor> save() override { return updater_->state(); }
  void load(std::span<const NamedTensor> state) override { updater_->load(state); }

 private:
  std::optional<Context> context_;
  std::optional<LocalPass> pass_;
  std::optional<Updater> updater_;
  std::optional<RecordedStep> recorded_;
  at::Tensor sums_;
};

}  // namespace

std::unique_ptr<Strategy> make_single(const StrategyConfig&) { return std::make_unique<Single>(); }

}  // namespace paceline::strategies
