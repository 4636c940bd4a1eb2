// The table of the gradient checks: every kind of layer in a tiny graph, beside the same function written with LibTorch's own modules.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "paceline/graph/graph.h"
#include "paceline/nn/op.h"

namespace paceline::nn {

struct Case {
  std::string name;
  graph::Kind kind;
  graph::Shape input;
  /// Settings of the layer under test.
  void (*set)(graph::Layer&) = [](graph::Layer&) {};

  int joined = 1;        // how many inputs the layer has: the sample, its tanh, its sigmoid
  bool training = true;  // how the pass is made
  double spread = 1;     // deviation of the sample's values
  double smoothing = 0;  // of the labels, softmax_loss
};

const std::vector<Case>& cases();

/// The layer under test comes last. `behind_norm`: its first input is a layer norm's output, which it may overwrite, in place of the
/// sample.
graph::Graph graph_of(const Case& row, bool behind_norm = false);

/// A batch of samples in double precision, or of tokens; the same one in each call.
at::Tensor sample_of(const Case& row);
/// Classes for the samples of a softmax_loss row.
at::Tensor targets_of(const Case& row);

/// To be called before each pass, so that all of them drop the same.
void reseed();

/// The layer's function in LibTorch's own modules, differentiable by autograd; `weights` are leaves in the arena's order.
at::Tensor reference(const Case& row, const at::Tensor& sample, const Weights& weights);

inline void PrintTo(const Case& row, std::ostream* out) { *out << row.name; }

}  // namespace paceline::nn
