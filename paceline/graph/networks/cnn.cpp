// A small convolutional network for small images: two 3×3 convolutions, each with ReLU and a max pool, then two fully connected layers.
// 2,122,186 parameters for 3×32×32, nearly all of them in fc1: it computes about as long as it communicates, which puts it between an
// mlp and a resnet.
#include "paceline/graph/builder.h"
#include "paceline/graph/networks/networks.h"

namespace paceline::graph {

Graph cnn(const ModelConfig& config) {
  Builder net(config, {3, 32, 32}, 10);
  net.require_image(4);
  net.conv("conv1", net.scaled(32), {.kernel = 3, .padding = 1}).relu().max_pool({.kernel = 2});  // 32×16×16
  net.conv("conv2", net.scaled(64), {.kernel = 3, .padding = 1}).relu().max_pool({.kernel = 2});  // 64×8×8
  net.flatten().fc("fc1", net.scaled(512)).relu();
  return net.fc("fc2", net.classes()).finish();
}

}  // namespace paceline::graph
