// A network's forward pass over a growing text: keys and values of earlier positions are cached, so that a token costs one position.
//
// Every layer except embedding and attention treats positions separately, and is computed by its op as in any pass.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "paceline/nn/graph_module.h"

namespace paceline::nn {

class Decoder {
 public:
  /// `module` holds the whole network, and its weights must outlive this. Computes in fp32, or in double if the arena is in
  /// double. ConfigError if the network reads no tokens.
  explicit Decoder(GraphModule& module);

  std::int64_t positions() const { return positions_; }  ///< that the network has
  std::int64_t length() const { return length_; }        ///< positions read
  std::int64_t room() const { return positions_ - length_; }
  void clear() { length_ = 0; }

  /// Reads tokens, [batch, new], that follow those read before. Returns the logits of the last one, [batch, vocabulary].
  at::Tensor read(const at::Tensor& tokens);

 private:
  struct Step {
    std::unique_ptr<Op> op;  // null: the input, embedding and attention
    Weights weights;
    at::Tensor keys, values;  // of attention: [batch, heads, positions, head]
  };

  at::Tensor embed(const graph::Layer& layer, const Step& step, const at::Tensor& tokens) const;
  at::Tensor attend(const graph::Layer& layer, Step& step, const at::Tensor& x) const;

  graph::Graph graph_;
  std::vector<Step> steps_;  // by layer
  std::int64_t positions_ = 0, length_ = 0;
};

}  // namespace paceline::nn
