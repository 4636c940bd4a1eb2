// MobileNet v1 (Howard et al., "MobileNets: efficient convolutional neural networks for mobile vision applications", 2017), width 1, in
// Keras' form: thirteen pairs of a depthwise 3×3 and a pointwise 1×1 convolution, each with batch norm (ε = 10⁻³) and ReLU6. 0.569 GMAC.
//
// Parameters: 4,231,976 are trainable. Keras' 4,253,864 also counts the 21,888 running means and variances of the batch norms, which are
// statistics: no gradient, no allreduce. Images up to 64×64 keep their size through the stem.
#include <fmt/format.h>

#include "paceline/graph/builder.h"
#include "paceline/graph/networks/networks.h"

namespace paceline::graph {

Graph mobilenet_v1(const ModelConfig& config) {
  struct Pair {
    std::int64_t channels, stride;
  };
  constexpr Pair kPairs[] = {{64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},  {512, 2}, {512, 1},
                             {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};
  Builder net(config, {3, 224, 224}, 1000);
  net.require_image(16);
  const std::int64_t stem_stride = net.small_image() ? 1 : 2;
  const auto conv = [&](const std::string& name, std::int64_t channels, Conv options) {
    options.bias = false;
    net.conv(name, channels, options).bn(name + "_bn", {.epsilon = 1e-3}).relu6();
  };

  conv("conv1", net.scaled(32), {.kernel = 3, .stride = stem_stride, .padding = 1});
  int index = 0;
  for (const Pair& pair : kPairs) {
    const std::int64_t inputs = net.shape()[0];
    conv(fmt::format("conv_dw_{}", ++index), inputs, {.kernel = 3, .stride = pair.stride, .padding = 1, .groups = inputs});
    conv(fmt::format("conv_pw_{}", index), net.scaled(pair.channels), {});
  }
  net.global_pool().flatten().dropout(dropout_or(config, 1e-3));
  return net.fc("fc", net.classes()).finish();
}

}  // namespace paceline::graph
