// AlexNet (Krizhevsky et al., "ImageNet classification with deep convolutional neural networks", 2012) in two forms:
//
//   alexnet            torchvision's, after Krizhevsky's "One weird trick" (2014): 64/192/384/256/256 channels, no normalisation, 224×224;
//                      61,100,840 parameters, 0.714 GMAC
//   alexnet_ungrouped  the paper's 96/256/384/384/256 channels with local response normalisation, without its split over two GPUs, 227×227;
//                      62,378,344 parameters, 1.135 GMAC
//
// Images up to 64×64 get a 5×5 stem of stride 1 and a narrower classifier; the rest is the same.
#include <array>

#include "paceline/graph/builder.h"
#include "paceline/graph/networks/networks.h"

namespace paceline::graph {
namespace {

struct Design {
  std::array<std::int64_t, 5> channels;
  std::int64_t side;          // of the usual image
  std::int64_t stem_padding;  // of the 11×11 stem
  bool normalise;
};

Graph build(const ModelConfig& config, const Design& design) {
  Builder net(config, {3, design.side, design.side}, 1000);
  net.require_image(16);
  const bool small = net.small_image();
  if (!small) net.require_image(67);  // what the stem of stride 4 leaves must fill three pools
  const double dropout = dropout_or(config, 0.5);
  Sequence features("features"), classifier("classifier");

  const auto normalise_and_pool = [&](bool normalise) {
    net.relu(features());
    if (normalise) net.lrn(features());
    net.max_pool({.kernel = 3, .stride = 2}, features());
  };
  const Conv stem = small ? Conv{.kernel = 5, .padding = 2} : Conv{.kernel = 11, .stride = 4, .padding = design.stem_padding};
  net.conv(features(), net.scaled(design.channels[0]), stem);
  normalise_and_pool(design.normalise);
  net.conv(features(), net.scaled(design.channels[1]), {.kernel = 5, .padding = 2});
  normalise_and_pool(design.normalise);
  net.conv(features(), net.scaled(design.channels[2]), {.kernel = 3, .padding = 1}).relu(features());
  net.conv(features(), net.scaled(design.channels[3]), {.kernel = 3, .padding = 1}).relu(features());
  net.conv(features(), net.scaled(design.channels[4]), {.kernel = 3, .padding = 1});
  normalise_and_pool(false);

  const std::int64_t side = small ? 3 : 6, width = net.scaled(small ? 1024 : 4096);
  net.global_pool({.pooled = side}, "avgpool").flatten();
  net.dropout(dropout, classifier()).fc(classifier(), width).relu(classifier());
  net.dropout(dropout, classifier()).fc(classifier(), width).relu(classifier());
  return net.fc(classifier(), net.classes()).finish();
}

}  // namespace

Graph alexnet(const ModelConfig& config) {
  return build(config, {.channels = {64, 192, 384, 256, 256}, .side = 224, .stem_padding = 2, .normalise = false});
}

Graph alexnet_ungrouped(const ModelConfig& config) {
  return build(config, {.channels = {96, 256, 384, 384, 256}, .side = 227, .stem_padding = 0, .normalise = true});
}

}  // namespace paceline::graph
