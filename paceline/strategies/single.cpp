// One worker: forward, backward, update. The yardstick for every other strategy, and the step that a GPU records in a CUDA graph.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <optional>

#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "paceline/nn/loss.h"
#include "paceline/strategies/all.h"
#include "paceline/strategies/updater.h"
#include "paceline/tensor/recorded.h"

namespace paceline::strategies {
namespace {

class Single final : public Strategy {
 public:
  void setup(const Context& context) override {
    context_.emplace(context);
    updater_.emplace(context.module.arena(), context.optim);
    recorded_.emplace(context.module.device(), context.record_steps);
    if (context.module.device().is_cpu()) pass_.generator = at::make_generator<at::CPUGeneratorImpl>();
  }

  StepResult step(const Batch& batch, const Point& point) override {
    // A recorded step works on the memory it was recorded with.
    if (!batch_.inputs.defined() || batch.inputs.data_ptr() != batch_.inputs.data_ptr() || batch.inputs.sizes() != batch_.inputs.sizes())
      recorded_->forget();
    batch_ = batch;
    if (context_->module.uses_chance()) seed_dropout(point.step);
    updater_->begin_step({.rate = static_cast<float>(point.rate), .step = point.step});
    recorded_->run([this] { compute(); });
    return {sums_, batch.targets.numel()};
  }

  std::vector<NamedTensor> save() const override { return updater_->state(); }
  void load(std::span<const NamedTensor> state) override { updater_->load(state); }

 private:
  void compute() {
    const Span whole(*context_, "step");
    nn::GraphModule& module = context_->module;
    const double scale = 1.0 / static_cast<double>(batch_.targets.numel());
    const std::int64_t samples = batch_.inputs.size(0), parts = std::min(context_->micro_batches, samples);
    at::Tensor sums;
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t begin = samples * part / parts, count = samples * (part + 1) / parts - begin;
      pass_.accumulate = part > 0;
      nn::Trace trace;
      at::Tensor logits;
      {
        const Span span(*context_, "forward");
        logits = module.run(batch_.inputs.narrow(0, begin, count), pass_, &trace);
      }
      const nn::Scored scored = nn::softmax_loss(logits, batch_.targets.narrow(0, begin, count), context_->label_smoothing, scale, true);
      sums = sums.defined() ? sums + scored.sums : scored.sums;
      const Span span(*context_, "backward");
      module.back(scored.gradient, pass_, trace);
    }
    const Span span(*context_, "update");
    updater_->update_all();
    module.refresh();
    sums_ = sums;
  }

  void seed_dropout(std::int64_t step) {
    const std::uint64_t seed = RandomStream(context_->seed, Purpose::dropout, 0, static_cast<std::uint64_t>(step)).next_u64();
    at::Generator generator = pass_.generator.defined() ? pass_.generator : at::globalContext().defaultGenerator(context_->module.device());
    generator.set_current_seed(seed);
  }

  /// A phase of the step, for whoever wants a trace.
  class Span {
   public:
    Span(const Context& context, const char* name) : context_(context), name_(name), begin_(context.clock.now()) {}
    ~Span() {
      if (context_.bus.wants_spans()) context_.bus.emit(observe::Span{name_, "step", 0, begin_, context_.clock.now()});
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    const Context& context_;
    const char* name_;
    Nanoseconds begin_;
  };

  std::optional<Context> context_;
  std::optional<Updater> updater_;
  std::optional<tensor::Recorded> recorded_;
  nn::Pass pass_;
  Batch batch_;
  at::Tensor sums_;
};

}  // namespace

std::unique_ptr<Strategy> make_single(const StrategyConfig&) { return std::make_unique<Single>(); }

}  // namespace paceline::strategies
