// A rank's part in a pipeline: the BatchPass of one stage, or of several chunks, of the model.
//
// The rank executes its list of steps (schedule/pipeline.h) with the model. Each forward, backward or weight-gradient step is one call over
// the units of a stage, with a Trace per micro-batch; tensors from and to other ranks go through Borders. On every stage, gradients of
// micro-batches are added in ascending order, running statistics are updated in the order of one worker, and dropout draws by micro-batch
// and layer. So the parameters are those that one worker with the same micro-batches would get.
//
// A weight that the first and the last stage share (tied embeddings) has a link of its own (tied_link.h).
#pragma once

#include <map>

#include "paceline/pipeline/borders.h"
#include "paceline/pipeline/tied_link.h"
#include "paceline/step/batch_pass.h"

namespace paceline::pipeline {

/// A LocalPass if the mesh has one stage. The context outlives it.
std::unique_ptr<step::BatchPass> make_pass(const step::Context& context);

class PipelinePass final : public step::BatchPass {
 public:
  /// ConfigError if the schedule is unknown, or the model cannot be cut into this many stages.
  explicit PipelinePass(const step::Context& context);

  void begin_step(std::int64_t step) override;
  at::Tensor run(const step::Batch& batch, double weight, const nn::GradientReady& ready = nullptr,
                 const std::function<void(const at::Tensor&)>& told = nullptr) override;
  /// Called once, at the end of run(): the micro-batches of a pipeline overlap, so their gradients are always accumulated here.
  void hand_over(std::function<void()> done) override { handed_over_ = std::move(done); }
  std::int64_t parts_of(const step::Batch&) const override { return 1; }
  at::Tensor evaluate(const step::Batch& batch) override;
  bool scores() const override;
  void abandon() override { borders_.abandon(); }
  void synchronise_norms(std::function<void(at::Tensor&)> sum_over_workers) override {
    pass_.sum_over_workers = std::move(sum_over_workers);
  }

  /// By virtual stage.
  const std::vector<nn::Units>& stages() const { return stages_; }
  /// Includes waits for other stages, which may be computing meanwhile.
  step::Traffic traffic() const override { return traffic_; }

 private:
  class Round;  // one batch in progress

  void zero_others();
  void sit_out(const nn::GradientReady& ready);
  template <class Body>
  at::Tensor or_abandon(Body&& body);
  double waited_s() const { return borders_.waited_s() + tied_.waited_s(); }
  std::int64_t bytes_sent() const { return borders_.bytes_sent() + tied_.bytes_sent(); }
  std::int64_t micro_batches_of(const step::Batch& batch) const;
  std::vector<nn::Share> shares_of(const step::Batch& batch, std::int64_t parts, std::int64_t part) const;
  schedule::PipelineProblem problem(std::int64_t parts) const;
  const schedule::PipelineSteps& steps_for(std::int64_t parts, bool evaluates);

  const step::Context& context_;
  const Entry<schedule::PipelineSchedule>& schedule_;
  int ranks_, rank_, chunks_;
  std::vector<nn::Units> stages_;
  std::map<std::pair<std::int64_t, bool>, schedule::PipelineSteps>
      steps_;                         // by the number of micro-batches, and whether there is no backward pass
  std::unique_ptr<nn::Masks> masks_;  // null: the model draws from LibTorch's generator
  nn::Pass pass_;
  std::function<void()> handed_over_;
  std::uint64_t chance_ = 0;  // of this step
  step::Traffic traffic_;     // of training, without evaluations
  TiedLink tied_;
  Borders borders_;
};

}  // namespace paceline::pipeline
