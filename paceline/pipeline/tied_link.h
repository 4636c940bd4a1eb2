// A weight that the first and the last stage of a pipeline share (tied embeddings). It belongs to the first one, which alone reduces,
// updates and saves it. The last one has a copy: every pass brings it the values, and when all micro-batches are back, the copy's gradient
// goes to the first stage and is added to its own.
#pragma once

#include <memory>
#include <optional>

#include "paceline/nn/model.h"
#include "paceline/step/strategy.h"

namespace paceline::pipeline {

class TiedLink {
 public:
  /// Collective along the pipeline's axis where stages part a tied weight. The context outlives it.
  explicit TiedLink(const step::Context& context);

  /// Whether this stage has the weight, or its copy.
  bool here() const { return weight_.has_value(); }
  /// Whether it is this stage's to train.
  bool trains() const { return here() && weight_->entry; }

  /// The values go from the first stage to the last: once in a pass, on both.
  void pass_values();
  /// The gradient goes the other way. `ready` is told of the sum, which is complete then.
  void add_gradients(const nn::GradientReady& ready);
  /// `ready` without the weight, whose gradient is not complete when the first stage has made its own part of it. Refers to `ready`.
  nn::GradientReady all_but_tied(const nn::GradientReady& ready) const;

  double waited_s() const { return waited_s_; }
  std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  void send(const at::Tensor& values);
  void receive(const at::Tensor& values);

  const Clock& clock_;
  std::optional<nn::TiedWeight> weight_;
  std::unique_ptr<comm::Communicator> ends_;  // the two stages; null if this is neither
  double waited_s_ = 0;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace paceline::pipeline
