// VGG-16 and VGG-19 (Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2015), torchvision's
// form without batch norm: stages of 3×3 convolutions, each stage closed by a max pool, then three fully connected layers. 138,357,544
// parameters and 15.470 GMAC (16); 143,667,240 parameters (19).
//
// Images up to 64×64 come out of the five pools as one or a few pixels: the mean of these and a classifier 512 wide replace 7×7 and 4096.
#include <vector>

#include "paceline/graph/builder.h"
#include "paceline/graph/networks/networks.h"

namespace paceline::graph {
namespace {

struct Stage {
  int convs;
  std::int64_t channels;
};

Graph build(const ModelConfig& config, const std::vector<Stage>& stages) {
  Builder net(config, {3, 224, 224}, 1000);
  net.require_image(17);
  const bool small = net.small_image();
  const double dropout = dropout_or(config, 0.5);
  Sequence features("features"), classifier("classifier");

  net.draw(Init::kaiming_fan_out);
  for (const Stage& stage : stages) {
    for (int i = 0; i < stage.convs; ++i) net.conv(features(), net.scaled(stage.channels), {.kernel = 3, .padding = 1}).relu(features());
    net.max_pool({.kernel = 2, .ceil_mode = small}, features());  // 28×28 would not last for five pools that round down
  }

  const std::int64_t side = small ? 1 : 7, width = net.scaled(small ? 512 : 4096);
  net.draw(Init::normal, 0.01);
  net.global_pool({.pooled = side}, "avgpool").flatten();
  net.fc(classifier(), width).relu(classifier()).dropout(dropout, classifier());
  net.fc(classifier(), width).relu(classifier()).dropout(dropout, classifier());
  return net.fc(classifier(), net.classes()).finish();
}

}  // namespace

Graph vgg16(const ModelConfig& config) { return build(config, {{2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}}); }
Graph vgg19(const ModelConfig& config) { return build(config, {{2, 64}, {2, 128}, {4, 256}, {4, 512}, {4, 512}}); }

}  // namespace paceline::graph
