// Residual networks (He et al., "Deep residual learning for image recognition", 2016) under torchvision's names:
//
//   resnet18     two 3×3 convolutions per block; 11,689,512 parameters, 1.814 GMAC
//   resnet50     torchvision's v1.5: the 3×3 convolution of a bottleneck takes the stride; 25,557,032 parameters, 4.089 GMAC
//   resnet20     the paper's for CIFAR: three stages of three blocks, 16 to 64 channels; 272,474 parameters, 41 MMAC for 32×32
//   resnet50_v1  the paper's: the first 1×1 convolution takes it; the same parameters, 3.858 GMAC
//
// A block adds its output to its input; if the size or the channels change, a strided 1×1 convolution ("downsample") adapts the
// input. Images up to 64×64 enter through a 3×3 convolution of stride 1 and no max pool, as is usual for CIFAR.
#include <fmt/format.h>

#include <array>

#include "paceline/graph/builder.h"
#include "paceline/graph/networks/networks.h"

namespace paceline::graph {
namespace {

enum class Block {
  basic,          // 3×3 (stride), 3×3
  bottleneck,     // 1×1, 3×3 (stride), 1×1 with four times the channels
  bottleneck_v1,  // 1×1 (stride), 3×3, 1×1 with four times the channels
};

void residual_block(Builder& net, Block kind, const std::string& name, std::int64_t width, std::int64_t stride, bool zero_init) {
  const int given = net.top();
  const bool changes = stride != 1 || net.shape()[0] != (kind == Block::basic ? width : 4 * width);
  const auto conv3x3 = [](std::int64_t s) { return Conv{.kernel = 3, .stride = s, .padding = 1, .bias = false}; };
  const auto conv1x1 = [](std::int64_t s) { return Conv{.stride = s, .bias = false}; };

  if (kind == Block::basic) {
    net.conv(name + ".conv1", width, conv3x3(stride)).bn(name + ".bn1").relu();
    net.conv(name + ".conv2", width, conv3x3(1)).bn(name + ".bn2", {.zero = zero_init});
  } else {
    const bool first = kind == Block::bottleneck_v1;
    net.conv(name + ".conv1", width, conv1x1(first ? stride : 1)).bn(name + ".bn1").relu();
    net.conv(name + ".conv2", width, conv3x3(first ? 1 : stride)).bn(name + ".bn2").relu();
    net.conv(name + ".conv3", 4 * width, conv1x1(1)).bn(name + ".bn3", {.zero = zero_init});
  }
  const int computed = net.top();
  const std::int64_t channels = net.shape()[0];

  net.from(given);
  if (changes) net.conv(name + ".downsample.0", channels, conv1x1(stride)).bn(name + ".downsample.1");
  net.add(computed).relu();
}

Graph build(const ModelConfig& config, Block kind, const std::array<int, 4>& blocks) {
  Builder net(config, {3, 224, 224}, 1000);
  net.require_image(16);

  net.draw(Init::kaiming_fan_out);
  if (net.small_image()) {
    net.conv("conv1", net.scaled(64), {.kernel = 3, .padding = 1, .bias = false}).bn("bn1").relu();
  } else {
    net.conv("conv1", net.scaled(64), {.kernel = 7, .stride = 2, .padding = 3, .bias = false}).bn("bn1").relu();
    net.max_pool({.kernel = 3, .stride = 2, .padding = 1}, "maxpool");
  }
  for (int stage = 0; stage < 4; ++stage)
    for (int block = 0; block < blocks[stage]; ++block)
      residual_block(net, kind, fmt::format("layer{}.{}", stage + 1, block), net.scaled(std::int64_t{64} << stage),
                     stage > 0 && block == 0 ? 2 : 1, config.zero_init_residual);

  net.draw(Init::standard);
  return net.global_pool({}, "avgpool").flatten().fc("fc", net.classes()).finish();
}

}  // namespace

Graph resnet20(const ModelConfig& config) {
  Builder net(config, {3, 32, 32}, 10);
  net.require_image(4);
  net.draw(Init::kaiming_fan_out);
  net.conv("conv1", net.scaled(16), {.kernel = 3, .padding = 1, .bias = false}).bn("bn1").relu();
  for (int stage = 0; stage < 3; ++stage)
    for (int block = 0; block < 3; ++block)
      residual_block(net, Block::basic, fmt::format("layer{}.{}", stage + 1, block), net.scaled(std::int64_t{16} << stage),
                     stage > 0 && block == 0 ? 2 : 1, config.zero_init_residual);
  net.draw(Init::standard);
  return net.global_pool({}, "avgpool").flatten().fc("fc", net.classes()).finish();
}

Graph resnet18(const ModelConfig& config) { return build(config, Block::basic, {2, 2, 2, 2}); }
Graph resnet50(const ModelConfig& config) { return build(config, Block::bottleneck, {3, 4, 6, 3}); }
Graph resnet50_v1(const ModelConfig& config) { return build(config, Block::bottleneck_v1, {3, 4, 6, 3}); }

}  // namespace paceline::graph
