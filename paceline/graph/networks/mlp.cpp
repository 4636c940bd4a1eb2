// A multi-layer perceptron: fully connected layers with ReLU between them, on any input, which it flattens.
// Its hidden widths are model.hidden: [128] by default, [] for softmax regression.
#include <fmt/format.h>

#include "paceline/graph/builder.h"
#include "paceline/graph/networks/networks.h"

namespace paceline::graph {

Graph mlp(const ModelConfig& config) {
  const double dropout = dropout_or(config, 0);
  Builder net(config, {1, 28, 28}, 10);
  net.flatten();
  int depth = 0;
  for (std::int64_t width : config.hidden) {
    net.fc(fmt::format("fc{}", ++depth), width).relu();
    if (dropout > 0) net.dropout(dropout);
  }
  return net.fc(fmt::format("fc{}", ++depth), net.classes()).finish();
}

}  // namespace paceline::graph
