// A weight that the first and the last stage of a pipeline share (tied embeddings). It belongs to the first stage, which alone reduces,
// updates and saves it. The last stage has a copy, which gets the values in every pass; when all micro-batches are done, the copy's
// gradient is sent to the first stage and added to its own.
#pragma once

#include <memory>
#include <optional>

#include "paceline/nn/model.h"
#include "paceline/step/strategy.h"

namespace paceline::pipeline {

class TiedLink {
 public:
  /// Collective along the pipeline's axis if a tied weight is shared across stages. The context outlives it.
  explicit TiedLink(const step::Context& context);

  /// Whether this stage has the weight or its copy.
  bool here() const { return weight_.has_value(); }
  /// Whether this stage trains it.
  bool trains() const { return here() && weight_->entry; }

  /// Sends the values from the first stage to the last; called once per pass on both.
  void pass_values();
  /// Sends the gradient the other way. `ready` is called with the sum, which is then complete.
  void add_gradients(const nn::GradientReady& ready);
  /// A wrapper of `ready` that withholds the weight, whose gradient is not complete when the first stage has computed its own part of it.
  /// Refers to `ready`.
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
