// Tensor parallelism, derived from a network's description: which ranks of the tensor axis hold and compute which part of every
// layer, and what they send each other (Shoeybi et al., "Megatron-LM", 2019; Korthikanti et al. 2022 for sequences). Networks are not
// rewritten: a table of rules, one row per kind of layer, is applied to the description, and `paceline graph NETWORK --mesh tensor=2`
// prints the result.
//
//   column form   a rank computes its part of the output channels from the whole input; backward, the input's gradients are summed
//   row form      a rank takes its part of the input channels; the partial outputs are summed
//
// A layer in column form is followed by one in row form wherever possible, with only layers between them that treat each channel
// separately. Such a pair costs one allreduce forward and one backward. A layer without a partner stays whole.
//
// Invariant: a tensor that is not split is the same, bit for bit, on all ranks of the axis; with sequence = true the tensors between the
// pairs are split by positions instead.
#pragma once

#include <optional>

#include "paceline/graph/graph.h"

namespace paceline::graph {

enum class Form {
  whole,    // every rank computes all of it
  column,   // a part of the output from the whole input
  row,      // partial sums of the whole output from a part of the input
  both,     // column form in, row form out: attention by heads
  follows,  // from a part of the channels, computes the same part
};
std::string_view name_of(Form form);

/// Which part of a layer's output a rank has: all of it, or a part of the channels, of the positions or of the samples of a batch.
enum class Layout { whole, channels, positions, samples };

enum class Exchange { allreduce, all_gather, reduce_scatter, all_to_all };
std::string_view name_of(Exchange exchange);

/// A collective in the pass of one sample.
struct Traffic {
  Exchange exchange;
  std::int64_t bytes = 0;  // in fp32: of the whole tensor
};

/// The part of a tensor that a rank holds: runs of indices along one dimension, stored one after the other.
struct Slice {
  std::int64_t dim = 0, all = 0;
  struct Run {
    std::int64_t first = 0, count = 0;
  };
  std::vector<Run> runs;
  std::int64_t count() const;
};

/// How a tensor is cut among the ranks: along `dim`, which consists of `blocks` of equal size (query, key, value), each of which is cut.
struct Cut {
  std::int64_t dim = 0, blocks = 1;
};

struct LayerSplit {
  Form form = Form::whole;
  Layout input = Layout::whole, output = Layout::whole;
  std::vector<std::optional<Cut>> cuts;  // by tensor of the layer, in their order
  std::vector<Traffic> forward, backward;
  bool sums_gradients = false;  // of its weights: a rank only has those of its own positions
  std::string note;             // why it stays whole, if its kind can be split
};

struct TensorSplit {
  int parts = 1;
  bool sequence = false;
  bool hybrid = false;             // over the data axis (hybrid.h): tensors that are otherwise whole are split by samples
  std::int64_t batch = 0;          // of a step, if the choice depended on it
  std::vector<LayerSplit> layers;  // in the graph's order

  bool splits_anything() const;
  bool splits_logits(const Graph& graph) const;
};

/// How `parts` ranks share the network. ConfigError, with the nearest number of ranks that works, if they cannot share its heads, its
/// positions, or the channels of most of its layers.
TensorSplit tensor_split(const Graph& graph, int parts, bool sequence = false);
/// Whether this many ranks can share the network, and would share at least some of it. Faster than tensor_split(), which searches for
/// advice before it throws.
bool splits(const Graph& graph, int parts, bool sequence = false);

/// A rank's part of `all`: parts have the same size, or nearly so.
Slice::Run part_of(std::int64_t all, int parts, int rank);
/// A rank's part of a tensor of this shape.
Slice slice_of(const Shape& whole, const Cut& cut, int parts, int rank);
/// A layer as a rank computes it: its own heads, channels, groups and output. For attention that is split by heads, `channels` are the
/// features of the rank's heads, and `positions` those that they see.
Layer local_layer(const Graph& graph, const TensorSplit& split, std::size_t layer, int rank);

/// The part of a tensor that a rank holds.
struct LocalTensor {
  Parameter whole;
  Shape shape;
  std::optional<Slice> slice;  // none: all of it
};
/// In the order of Graph::parameters().
std::vector<LocalTensor> local_tensors(const Graph& graph, const TensorSplit& split, int rank);
/// The number of trainable elements that a rank holds.
std::int64_t local_parameters(const Graph& graph, const TensorSplit& split, int rank);

}  // namespace paceline::graph
