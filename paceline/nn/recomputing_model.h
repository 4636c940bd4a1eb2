// Activation recomputation: a forward pass keeps less than its backward pass needs, and the rest is recomputed. The result has the same
// bits as without it: dropout draws the same masks again, and running statistics are updated once.
//
// What is kept for a range of units, and how often a unit goes forward:
//
//   units   the input of each unit; a unit is recomputed before its backward pass. The model's last unit, whose backward pass follows at
//           once, is kept completely. Twice.
//   all     the input of each of about √n segments. A segment is recomputed as `units` would, and its units once more before their
//           backward passes. Up to three times: for ranges of many units, and pipelines with many micro-batches in flight.
//
// Hooks around a unit's backward pass enclose its second forward pass, so that weights are gathered once for both; if a segment is
// recomputed, its units' forward hooks are called again.
#pragma once

#include <memory>
#include <utility>

#include "paceline/nn/model.h"

namespace paceline::nn {

enum class Recompute : std::uint8_t { none, units, all };

/// "none", "units", "all". ConfigError.
Recompute parse_recompute(const std::string& text);

class RecomputingModel : public Model {
 public:
  RecomputingModel(std::shared_ptr<Model> inner, Recompute what) : inner_(std::move(inner)), what_(what) {}

  using Model::back;
  using Model::run;
  Tensors run(Units range, Tensors inputs, const Pass& pass, Trace* trace) override;
  Tensors back(Units range, Tensors gradients, const Pass& pass, Trace& trace, const Wanted& wanted, const GradientReady& ready) override;
  void weight_gradients(Units range, const Pass& pass, Trace& trace, const GradientReady& ready) override {
    inner_->weight_gradients(range, pass, trace, ready);
  }

  void sit_out_back(Units range, const Pass& pass, const GradientReady& ready) override;

  std::shared_ptr<Model> another() const override { return std::make_shared<RecomputingModel>(inner_->another(), what_); }
  const Model& network() const override { return inner_->network(); }
  const std::vector<Unit>& units() const override { return inner_->units(); }
  tensor::Arena& arena() override { return inner_->arena(); }
  tensor::Arena& statistics() override { return inner_->statistics(); }
  double statistics_momentum(std::size_t entry) const override { return inner_->statistics_momentum(entry); }
  const c10::Device& device() const override { return inner_->device(); }
  tensor::Precision precision() const override { return inner_->precision(); }
  bool uses_chance() const override { return inner_->uses_chance(); }
  bool takes_masks() const override { return inner_->takes_masks(); }
  bool recordable() const override { return inner_->recordable(); }
  bool exchanges_samples() const override { return inner_->exchanges_samples(); }
  bool workers_meet() const override { return inner_->workers_meet(); }
  Traffic traffic() const override { return inner_->traffic(); }
  std::vector<Part> parts() const override { return inner_->parts(); }
  void walk(const at::Tensor& input, const Pass& pass, const Visit& visit) override { inner_->walk(input, pass, visit); }
  std::vector<Untrained> untrained() const override { return inner_->untrained(); }
  void refresh() override { inner_->refresh(); }
  void units_came(Units units) override { inner_->units_came(units); }
  void units_go(Units units) override { inner_->units_go(units); }
  void take_back() override { inner_->take_back(); }

 private:
  std::vector<Units> segments_of(Units range) const;
  void keep(Units segment, const Tensors& inputs, const Pass& pass, Trace& trace) const;
  Tensors run_units(Units range, Tensors inputs, const Pass& pass, Trace& trace, bool goes_back_at_once);
  void open_segment(std::size_t unit, const Pass& pass, Trace& trace);
  Tensors back_unit(std::size_t unit, Tensors gradients, const Pass& pass, Trace& trace, const Wanted& wanted, const GradientReady& ready);

  std::shared_ptr<Model> inner_;
  Recompute what_;
};

/// The model itself if nothing is to be recomputed. ConfigError if it has only one unit, of which everything must be kept.
std::shared_ptr<Model> recomputing(std::shared_ptr<Model> model, Recompute what);

}  // namespace paceline::nn
