// Hybrid parallelism (Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014): on the same ranks, most layers
// are data-parallel, and some fully connected ones, with many weights and few activations, are tensor-parallel. For those, activations are
// sent instead of gradients.
//
//   column → row   the workers' activations are gathered along the batch, each worker computes the whole batch with its part of the
//                  weights, and the partial sums are reduced and scattered along the batch: each has its own samples again
//   row alone      each worker gets its part of the channels of all samples (all-to-all); partial sums are scattered as above
//   column alone   gathered as above; each worker gets all channels of its samples back (all-to-all)
//
// The backward pass is the mirror image. Forms, cuts and tables are those of tensor_split.h. Layers are paired so that a worker sends the
// fewest bytes in a step.
#pragma once

#include "paceline/graph/tensor_split.h"

namespace paceline::graph {

/// How `workers` of the data axis share the layers that `which` names: "auto" (each layer whose activations are fewer bytes than its
/// gradients, in a step of `batch` samples), or names separated by commas, in which a trailing * matches anything. ConfigError for names
/// that match nothing, layers that are not fully connected, and features that this many workers cannot share.
TensorSplit hybrid_split(const Graph& graph, const std::string& which, int workers, std::int64_t batch);

/// The bytes that a worker sends in a step for the layers that are split, in fp32.
struct HybridBytes {
  std::int64_t activations = 0;
  std::int64_t gradients = 0;  // that it would send if they were data-parallel
};
HybridBytes hybrid_bytes(const Graph& graph, const TensorSplit& split);

/// "classifier.1 row, classifier.4 column, classifier.6 row: 17,657,856 B of activations in a step instead of 351,756,288 B of gradients".
std::string describe_hybrid(const Graph& graph, const TensorSplit& split);

}  // namespace paceline::graph
