// The BatchPass of a worker that computes the whole model.
#pragma once

#include <optional>

#include "paceline/step/batch_pass.h"

namespace paceline::step {

class LocalPass final : public BatchPass {
 public:
  explicit LocalPass(const Context& context) : LocalPass(context, context.model) {}
  /// Of a worker that has a model of its own. Both outlive it.
  LocalPass(const Context& context, nn::Model& model);

  void begin_step(std::int64_t step) override;
  at::Tensor run(const Batch& batch, double weight, const nn::GradientReady& ready = nullptr,
                 const std::function<void(const at::Tensor&)>& told = nullptr) override;
  void hand_over(std::function<void()> done) override { handed_over_ = std::move(done); }
  std::int64_t parts_of(const Batch& batch) const override;
  at::Tensor evaluate(const Batch& batch) override;
  bool scores() const override { return true; }
  Traffic traffic() const override { return traffic_; }
  void was_recorded() override;
  void was_replayed() override { traffic_ += last_; }
  void synchronise_norms(std::function<void(at::Tensor&)> sum_over_workers) override {
    pass_.sum_over_workers = std::move(sum_over_workers);
  }

 private:
  bool looks() const { return context_.on_not_finite && model_.device().is_cpu(); }
  void diagnose(const at::Tensor& suspect, const at::Tensor& inputs) const;
  bool exchanges() const { return model_.exchanges_samples(); }
  std::uint64_t chance_of_worker(int rank) const;
  std::vector<nn::Share> shares_of(const Batch& batch, std::int64_t parts, std::int64_t part) const;

  const Context& context_;
  nn::Model& model_;
  std::unique_ptr<nn::Masks> masks_;  // null: the model draws from LibTorch's generator
  nn::Pass pass_;
  std::function<void()> handed_over_;
  nn::GradientReady nobody_;
  std::int64_t step_ = 0;
  std::uint64_t seeded_step_ = 0;      // Masks::begin_step
  std::uint64_t chance_ = 0;           // of this step
  std::optional<TrafficMeter> meter_;  // of the last run()
  Traffic traffic_, last_;             // of all runs; of the last
};

/// A phase on a lane of this worker, for the trace.
class PhaseSpan {
 public:
  PhaseSpan(const Context& context, const char* name, const char* lane = "step")
      : context_(context), name_(name), lane_(lane), begin_(context.clock.now()) {}
  ~PhaseSpan() {
    if (context_.bus.wants_spans()) context_.bus.emit(observe::Span{name_, lane_, context_.rank(), begin_, context_.clock.now()});
  }
  PhaseSpan(const PhaseSpan&) = delete;
  PhaseSpan& operator=(const PhaseSpan&) = delete;

 private:
  const Context& context_;
  const char *name_, *lane_;
  Nanoseconds begin_;
};

}  // namespace paceline::step
