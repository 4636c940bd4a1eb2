// One worker: forward, backward, update. The baseline for every other strategy, and the step that a GPU records in a CUDA graph.
#include "paceline/base/error.h"
#include "paceline/data_parallel/residual_carryover.h"
#include "paceline/pipeline/pipeline_pass.h"
#include "paceline/schedule/program_writer.h"
#include "paceline/step/local_pass.h"
#include "paceline/step/loss_scale.h"
#include "paceline/step/recorded_step.h"
#include "paceline/step/updater.h"
#include "paceline/strategies/registry.h"

namespace paceline::strategies {
namespace {

class Single final : public step::Strategy {
 public:
  explicit Single(const step::Context& context)
      : context_(context),
        pass_(pipeline::make_pass(context_)),
        updater_(context.model.arena(), context.optim, &context.mesh, context.offload),
        scale_(context_),
        carryover_(context_),
        recorded_(context, context.record_steps && !updater_.meets() && !scale_.on() && !context.offload) {
    if (context.workers() > 1)
      throw ConfigError("strategy 'single' has one worker; use strategy.name=allreduce (`paceline list` names the others)");
  }

  step::StepResult step(const step::Batch& batch, const step::Point& point) override {
    const step::PhaseSpan span(context_, "step");
    pass_->begin_step(point.step);
    updater_.begin_step(
        {.rate = static_cast<float>(point.rate), .gradient_scale = static_cast<float>(1 / scale_.scale()), .step = point.step});
    const auto work = [&] {
      const at::Tensor sums = pass_->run(batch, batch.weight(1) * scale_.scale());
      carryover_.apply(0, context_.model.arena().length());
      const step::PhaseSpan update(context_, "update");
      if (!scale_.on() || scale_.accepts(updater_.finite())) updater_.update_all();
      context_.model.refresh();
      return sums;
    };
    // What is carried over is applied only once, so it must not be recorded.
    return {carryover_.any() ? work() : recorded_.result(batch, *pass_, work), batch.targets.numel()};
  }

  std::vector<step::NamedTensor> save() override {
    std::vector<step::NamedTensor> state = updater_.state();
    for (auto& part : {carryover_.save(), scale_.save()}) state.insert(state.end(), part.begin(), part.end());
    return state;
  }
  void load(std::span<const step::NamedTensor> state) override {
    updater_.load(data_parallel::with_momentum_in_place(context_, state));
    carryover_.load(state);
    scale_.load(state);
  }
  void abandon() override { pass_->abandon(); }
  step::Traffic traffic() const override { return pass_->traffic(); }
  std::int64_t skipped_steps() const override { return scale_.skipped(); }

 private:
  step::Context context_;
  std::unique_ptr<step::BatchPass> pass_;
  step::Updater updater_;
  step::LossScale scale_;
  data_parallel::ResidualCarryover carryover_;
  step::RecordedStep recorded_;
};

}  // namespace

std::unique_ptr<step::Strategy> make_single(const StrategySettings&, const step::Context& context) {
  return std::make_unique<Single>(context);
}

std::vector<schedule::Program> single_program(const schedule::ProgramModel& model, const schedule::ProgramSettings& settings) {
  std::vector<schedule::Program> programs;
  for (int rank = 0; rank < settings.pipeline; ++rank) {
    schedule::ProgramWriter writer(model, settings, rank);
    writer.passes();
    writer.update_all(writer.elements());
    programs.push_back(writer.take());
  }
  return programs;
}

}  // namespace paceline::strategies
