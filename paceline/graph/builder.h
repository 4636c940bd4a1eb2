// How networks are written. A Builder appends layers to a graph, each of which reads the one before it:
//
//   Builder net(config, {1, 28, 28}, 10);
//   net.conv("conv1", 6, {.kernel = 5, .padding = 2}).relu().max_pool({.kernel = 2});
//   return net.flatten().fc("fc1", 10).finish();
//
// Branches: top() is the layer that was appended last, from() goes back to an earlier one, add() and concat() join. Layers without weights
// need no name ("relu_3"); the others have the name of PyTorch's module.
#pragma once

#include <map>

#include "paceline/graph/graph.h"
#include "paceline/graph/registry.h"

namespace paceline::graph {

/// Height and width; one number stands for both.
struct Size {
  Size(std::int64_t side) : h(side), w(side) {}  // NOLINT: `.kernel = 3` reads best
  Size(std::int64_t height, std::int64_t width) : h(height), w(width) {}
  std::int64_t h, w;
};

struct Conv {
  Size kernel = 1;
  std::int64_t stride = 1;
  Size padding = 0;
  std::int64_t groups = 1;
  bool bias = true;
};

struct Pool {
  Size kernel = 2;
  std::int64_t stride = 2;
  Size padding = 0;
  bool ceil_mode = false;
  bool count_padding = true;  // average pool: zeros of the padding count as pixels
  bool counted = true;        // among Counts::pool
};

struct GlobalPool {
  Size pooled = 1;
  bool counted = false;
};

struct Norm {
  double epsilon = 1e-5;
  bool scale = true;  // batch norm: has a weight in addition to its bias
  bool zero = false;  // its weight starts at 0
};

struct Attention {
  std::int64_t heads = 1;
  bool causal = true;
  double dropout = 0;            // of the attention weights
  double projection_std = 0.02;  // deviation of the output projection's initial weights
};

struct Experts {
  std::int64_t count = 0, top = 1;
  std::int64_t hidden = 0;  // features of each
  double capacity = 1.25, balance = 0;
  double projection_std = 0.02;  // as Attention's
};

/// Names of the members of PyTorch's Sequential: "features.0", "features.1", …
class Sequence {
 public:
  explicit Sequence(std::string name) : name_(std::move(name)) {}
  std::string operator()() { return name_ + "." + std::to_string(next_++); }

 private:
  std::string name_;
  int next_ = 0;
};

class Builder {
 public:
  Builder(std::string network, Shape input, std::int64_t classes);
  /// The network that a recipe asks for; `input` and `classes` are used if the recipe does not set them.
  Builder(const ModelConfig& config, const Shape& input, std::int64_t classes);

  std::int64_t classes() const { return graph_.classes(); }
  const Shape& input() const { return graph_.input(); }
  int top() const { return top_; }
  const Shape& shape() const { return graph_.layers().at(top_).output; }  ///< of the top

  void require_image(std::int64_t least_side);       ///< ConfigError unless the input is an image of at least this height and width
  void require_tokens();                             ///< ConfigError unless the input is a row of tokens
  std::int64_t scaled(std::int64_t channels) const;  ///< times model.multiplier, in multiples of 8
  bool small_image() const;                          ///< a side of up to 64 pixels: networks then omit the downsampling of their stem

  Builder& from(int layer);  ///< the next layer reads this one
  Builder& draw(Init init,
                double deviation = 0.02);  ///< initial weights of the conv, fc, embedding, attention and experts layers that follow

  Builder& conv(std::string name, std::int64_t channels, const Conv& options = {});
  Builder& fc(std::string name, std::int64_t features, bool bias = true);
  /// Computes the logits with the table of an embedding as weight (tied embeddings).
  Builder& tied(std::string name, int embedding);
  Builder& bn(std::string name, const Norm& options = {});
  Builder& layer_norm(std::string name);
  Builder& embedding(std::string name, std::int64_t vocabulary, std::int64_t positions, std::int64_t features);
  Builder& attention(std::string name, const Attention& options);
  Builder& experts(std::string name, const Experts& options);

  Builder& relu(std::string name = {});
  Builder& relu6(std::string name = {});
  Builder& gelu(std::string name = {});
  Builder& tanh(std::string name = {});
  Builder& sigmoid(std::string name = {});
  Builder& dropout(double probability, std::string name = {});
  Builder& lrn(std::string name = {});
  Builder& max_pool(const Pool& options, std::string name = {});
  Builder& avg_pool(const Pool& options, std::string name = {});
  Builder& global_pool(const GlobalPool& options = {}, std::string name = {});
  Builder& flatten(std::string name = {});
  Builder& add(int other, std::string name = {});                          ///< the top plus another layer
  Builder& concat(const std::vector<int>& layers, std::string name = {});  ///< of these layers only; the top must be named to be included

  /// Appends the loss to the top, which is taken as the logits, and returns the graph.
  Graph finish();

 private:
  Builder& append(Kind kind, std::string name, Layer layer = {});
  Builder& append_pool(Kind kind, const Pool& options, std::string name);
  Layer weighted(std::int64_t channels, bool bias) const;

  Graph graph_;
  double multiplier_ = 1;
  int top_ = 0;
  Init init_ = Init::standard;
  double deviation_ = 0.02;
  std::map<Kind, int> unnamed_;
};

}  // namespace paceline::graph
