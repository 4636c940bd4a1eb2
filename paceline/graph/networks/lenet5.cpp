// LeNet-5 (LeCun et al., "Gradient-based learning applied to document recognition", 1998) as it is trained today: ReLU and max pooling in
// place of tanh and subsampling, every map of conv2 connected. 61,706 parameters for MNIST.
//
// The paper pads MNIST's 28×28 digits to 32×32; here, conv1 pads smaller images itself.
#include "paceline/graph/builder.h"
#include "paceline/graph/networks/networks.h"

namespace paceline::graph {

Graph lenet5(const ModelConfig& config) {
  Builder net(config, {1, 28, 28}, 10);
  net.require_image(28);
  const Size padding = {net.input()[1] < 32 ? 2 : 0, net.input()[2] < 32 ? 2 : 0};

  net.conv("conv1", 6, {.kernel = 5, .padding = padding}).relu().max_pool({.kernel = 2});  // 6×14×14
  net.conv("conv2", 16, {.kernel = 5}).relu().max_pool({.kernel = 2});                     // 16×5×5
  net.flatten().fc("fc1", 120).relu().fc("fc2", 84).relu();
  return net.fc("fc3", net.classes()).finish();
}

}  // namespace paceline::graph
