// ResNet-50 with pre-activation (He et al., "Identity mappings in deep residual networks", 2016): batch norm and ReLU come before the
// convolutions, nothing follows the sum of a block, and the network ends in one more norm. It exists in two forms that differ in cost:
//
//   resnet50_v2        tf_cnn_benchmarks': batch norm after the stem, no biases, the first block of a stage takes the stride, in its first
//                      1×1 convolution; 25,549,480 parameters, 3.858 GMAC
//   resnet50_v2_keras  Keras': stem, projections and last convolutions of a block have biases; the last block of a stage takes the stride,
//                      in its 3×3 convolution; 25,568,360 trainable parameters, 3.482 GMAC
//
// Images up to 64×64 enter through a 3×3 convolution of stride 1 and no max pool.
#include <fmt/format.h>

#include "paceline/graph/builder.h"
#include "paceline/graph/networks/networks.h"

namespace paceline::graph {
namespace {

void residual_block(Builder& net, bool keras, const std::string& name, std::int64_t width, std::int64_t stride, bool project) {
  const int given = net.top();
  net.bn(name + ".bn1").relu();
  const int activated = net.top();
  net.conv(name + ".conv1", width, {.stride = keras ? 1 : stride, .bias = false}).bn(name + ".bn2").relu();
  net.conv(name + ".conv2", width, {.kernel = 3, .stride = keras ? stride : 1, .padding = 1, .bias = false}).bn(name + ".bn3").relu();
  net.conv(name + ".conv3", 4 * width, {.bias = keras});
  const int computed = net.top();

  if (project) {
    net.from(activated).conv(name + ".downsample.0", 4 * width, {.stride = stride, .bias = keras});
  } else {
    net.from(given);
    if (stride > 1) net.max_pool({.kernel = 1, .stride = stride, .counted = false});  // every second pixel; not counted as a pool
  }
  net.add(computed);
}

Graph build_v2(const ModelConfig& config, bool keras) {
  constexpr int kBlocks[] = {3, 4, 6, 3};
  Builder net(config, {3, 224, 224}, 1000);
  net.require_image(16);

  net.draw(Init::kaiming_fan_out);
  const bool small = net.small_image();
  net.conv("conv1", 64,
           small ? Conv{.kernel = 3, .padding = 1, .bias = keras} : Conv{.kernel = 7, .stride = 2, .padding = 3, .bias = keras});
  if (!keras) net.bn("bn1").relu();
  if (!small) net.max_pool({.kernel = 3, .stride = 2, .padding = 1}, "maxpool");

  for (int stage = 0; stage < 4; ++stage)
    for (int block = 0; block < kBlocks[stage]; ++block) {
      const bool strided = keras ? stage < 3 && block == kBlocks[stage] - 1 : stage > 0 && block == 0;
      residual_block(net, keras, fmt::format("layer{}.{}", stage + 1, block), std::int64_t{64} << stage, strided ? 2 : 1, block == 0);
    }

  net.draw(Init::standard).bn("norm").relu();
  return net.global_pool({}, "avgpool").flatten().fc("fc", net.classes()).finish();
}

}  // namespace

Graph resnet50_v2(const ModelConfig& config) { return build_v2(config, false); }
Graph resnet50_v2_keras(const ModelConfig& config) { return build_v2(config, true); }

}  // namespace paceline::graph
