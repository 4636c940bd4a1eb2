// A network described once, without LibTorch: layers in the order of execution, each with its output shape and its cost.
//
// The LibTorch module, the layer table of the performance model, the memory estimate and the cut into pipeline stages all come from this
// description. Shapes do not include the batch: an image is {channels, height, width}, a sequence {positions, features}, a vector
// {features}. A layer's name is the path of PyTorch's module of the same weights ("layer1.0.conv1"), so that a state_dict fits without a
// table.
//
// Invariant: a layer's inputs precede it, and names are unique; layers_[0] is the input; a built-in network ends in its logits, followed by
// one softmax_loss, which compares them with the target.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace paceline::graph {

enum class Kind {
  input,       // the sample
  conv,        // 2-D convolution, groups allowed
  fc,          // matrix product on the last dim
  batch_norm,  // over channels
  layer_norm,  // over the last dim
  relu,
  relu6,
  gelu,
  tanh,
  sigmoid,
  max_pool,
  avg_pool,
  global_pool,  // mean over the image, or over the cells of a coarser one (PyTorch's adaptive average)
  lrn,
  dropout,
  add,
  concat,  // along channels
  flatten,
  embedding,    // tokens to features (wte), plus learned positions (wpe) if `positions` is set
  attention,    // multi-head self-attention with its projections in (c_attn: query, key, value) and out (c_proj)
  experts,      // many MLPs (c_fc, gelu, c_proj), of which a gate chooses a few for each position
  softmax_loss  // cross entropy with the target
};

std::string_view name_of(Kind kind);

using Shape = std::vector<std::int64_t>;
std::int64_t elements(const Shape& shape);
std::string to_string(const Shape& shape);  // "64x56x56"

/// How PyTorch's reference implementation of the network draws a weight.
enum class Init {
  standard,          // kaiming_uniform(a=√5) for conv and fc, bias uniform ±1/√fan_in; norms 1 and 0; embeddings N(0,1)
  kaiming_fan_out,   // torchvision's ResNet, VGG: N(0, √(2/fan_out)); bias 0
  normal,            // N(0, init_std) as GPT-2 and torchvision's VGG classifier; bias 0
  truncated_normal,  // N(0, init_std) cut at ±2, torchvision's Inception; bias as in standard
  zero               // for the last norm of a residual block, if a recipe asks for it
};

struct Layer {
  std::string name;
  Kind kind = Kind::input;
  std::vector<int> inputs;  // indices of layers before this one
  Shape output;

  // Settings; each kind reads its own.
  std::int64_t channels = 0;                // conv: output channels; fc: output features; embedding: features
  std::int64_t kernel_h = 1, kernel_w = 1;  // conv and pools
  std::int64_t stride = 1;
  std::int64_t padding_h = 0, padding_w = 0;
  std::int64_t groups = 1;
  bool bias = true;                            // conv, fc and attention
  bool scale = true;                           // batch_norm: has a weight in addition to its bias (Keras' Inception has none)
  bool ceil_mode = false;                      // pools
  bool count_padding = true;                   // avg_pool
  bool counted_as_pool = true;                 // false for layers that the slides do not count as pools: a final mean, plain subsampling
  std::int64_t pooled_h = 1, pooled_w = 1;     // global_pool: the size of its output
  double epsilon = 1e-5;                       // norms
  double momentum = 0.1;                       // batch_norm: weight of the new statistics
  double probability = 0.5;                    // dropout; attention: dropout of the attention weights
  std::int64_t heads = 1;                      // attention
  bool causal = false;                         // attention
  std::int64_t vocabulary = 0, positions = 0;  // embedding
  std::int64_t experts = 0, experts_top = 1;   // experts: how many, and how many of them see a position; channels: hidden features of each
  double expert_capacity = 1.25, balance = 0;  // experts: see expert_slots(); weight of the balance loss
  std::int64_t lrn_size = 5;
  int table = -1;  // fc: the embedding whose table is its weight (tied embeddings), an earlier layer; below 0: it has its own weight
  double lrn_alpha = 1e-4, lrn_beta = 0.75, lrn_k = 2;
  Init init = Init::standard;
  double init_std = 0.02;
  double projection_std = 0.02;  // attention, experts: init_std of c_proj, which is smaller than the others in GPT-2

  // Costs for one sample, filled in by shape inference.
  std::int64_t parameters = 0;  // trainable ones, without the statistics of batch norms
  std::int64_t macs = 0;  // multiply–accumulates of the forward pass: conv, fc, attention (projections and both T×T products), experts
  std::int64_t activation_bytes = 0;  // its output in fp32
  std::int64_t gradient_bytes = 0;    // parameters in fp32
};

/// A trainable tensor or a statistic, under PyTorch's name.
struct Parameter {
  std::string name;  // "layer1.0.conv1.weight"
  Shape shape;       // as PyTorch stores it: conv {out, in/groups, kh, kw}, fc {out, in}
  int layer = 0;
  bool trainable = true;  // false: running_mean, running_var of a batch norm
  bool decay = true;      // false: norms and biases, which weight decay and LARS do not change
  bool spread = false;    // each data-parallel worker holds a part of it, along its first dimension: experts
};

/// Another name of a parameter in PyTorch's state_dict.
struct Alias {
  std::string name, parameter;
};

/// The number of positions of one sequence that an expert processes: capacity × top × positions / experts, rounded up, at most all
/// positions.
std::int64_t expert_slots(const Layer& layer);

/// ConfigError, with the nearest choices that work, if the experts cannot be divided evenly among this many data-parallel workers.
void check_experts(std::int64_t experts, std::int64_t workers);

struct Counts {
  std::int64_t conv = 0, fc = 0, pool = 0;
};

class Graph {
 public:
  Graph(std::string network, Shape input, std::int64_t classes);

  const std::string& network() const { return network_; }
  std::int64_t classes() const { return classes_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const Shape& input() const { return layers_.front().output; }

  int tied() const;    ///< index of the layer whose weight is an embedding's table; below 0: there is none
  int logits() const;  ///< index of the last layer that is not the loss
  const Shape& output() const { return layers_.at(logits()).output; }  ///< of the logits

  /// Appends a layer after inferring its shape and cost; throws ConfigError that names the layer if shapes do not match.
  int append(Layer layer);

  /// Draws initial weights as PyTorch's layers do by default (Init::standard), not as the network's reference does. Norms that start at
  /// zero do so because a recipe asked for it, and are not changed.
  void draw_as_layers();

  std::vector<Parameter> parameters() const;  ///< in the order of layers; within a layer, in PyTorch's order
  std::vector<Alias> aliases() const;
  std::int64_t parameter_count() const { return parameter_count_; }
  std::int64_t macs() const { return macs_; }
  std::int64_t activation_bytes() const { return activation_bytes_; }
  Counts counts() const;

 private:
  void check_table(const Layer& layer, const Shape& input) const;

  std::string network_;
  std::int64_t classes_;
  std::vector<Layer> layers_;
  std::unordered_set<std::string> names_;
  std::int64_t parameter_count_ = 0, macs_ = 0, activation_bytes_ = 0;
};

}  // namespace paceline::graph
