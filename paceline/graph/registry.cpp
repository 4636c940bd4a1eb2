#include "paceline/graph/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "paceline/graph/networks/networks.h"

namespace paceline::graph {
namespace {

constexpr Entry<MakeGraph> kNetworks[] = {
    {"mlp", "fully connected layers of the widths in model.hidden; any input", mlp},
    {"lenet5", "LeNet-5 with ReLU; images from 28x28", lenet5},
    {"cnn", "two convolutions and two fully connected layers; small images", cnn},
    {"alexnet", "AlexNet, torchvision's form; 224x224 or small images", alexnet},
    {"alexnet_ungrouped", "AlexNet of the paper on one device; 227x227 or small images", alexnet_ungrouped},
    {"vgg16", "VGG-16; 224x224 or small images", vgg16},
    {"vgg19", "VGG-19; 224x224 or small images", vgg19},
    {"resnet18", "ResNet-18; 224x224 or small images", resnet18},
    {"resnet20", "ResNet-20 for CIFAR, 0.27 M parameters; small images", resnet20},
    {"resnet50", "ResNet-50 v1.5, torchvision's form; 224x224 or small images", resnet50},
    {"resnet50_v1", "ResNet-50 of the paper; 224x224 or small images", resnet50_v1},
    {"resnet50_v2", "ResNet-50 with pre-activation, tf_cnn_benchmarks' form; 224x224 or small images", resnet50_v2},
    {"resnet50_v2_keras", "ResNet-50 with pre-activation, Keras' form; 224x224 or small images", resnet50_v2_keras},
    {"inception_v3", "Inception v3 without auxiliary head, Keras' form; 299x299, from 75x75", inception_v3},
    {"inception_v3_torchvision", "Inception v3 without auxiliary head, torchvision's form; 299x299, from 75x75", inception_v3_torchvision},
    {"mobilenet_v1", "MobileNet v1 of width 1; 224x224 or small images", mobilenet_v1},
    {"gpt", "decoder-only transformer in GPT-2's layout, sized by model.layers, width, heads; rows of tokens", gpt},
};

ModelConfig unscaled(ModelConfig config) { return config.multiplier = 1, config; }

// A setting that the network has no use for must not vanish silently.
void refuse_unused(const ModelConfig& config, const Graph& graph) {
  const auto none = [&](auto&& matches) { return std::none_of(graph.layers().begin(), graph.layers().end(), matches); };
  if (config.dropout > 0 && none([](const Layer& layer) { return layer.kind == Kind::dropout; }))
    throw ConfigError(fmt::format("network '{}' has no dropout; leave model.dropout out", config.network));
  if (config.multiplier != 1 && make_graph(unscaled(config)).parameter_count() == graph.parameter_count())
    throw ConfigError(fmt::format("model.multiplier={} has no effect on network '{}'; leave it out", config.multiplier, config.network));
  if (config.zero_init_residual && none([](const Layer& layer) { return layer.init == Init::zero; }))
    throw ConfigError(
        fmt::format("network '{}' has no norm at the end of a residual block; leave model.zero_init_residual out", config.network));
  if (config.tied && graph.tied() < 0)
    throw ConfigError(
        fmt::format("network '{}' has no token embedding to tie its head to; leave model.tied out, or use gpt", config.network));
  if (config.experts > 0 && none([](const Layer& layer) { return layer.kind == Kind::experts; }))
    throw ConfigError(config.network == "gpt"
                          ? fmt::format("model.expert_every={} leaves none of {} blocks for model.experts={}; use "
                                        "model.expert_every={}",
                                        config.expert_every, config.layers, config.experts, config.layers)
                          : fmt::format("network '{}' has no experts; leave model.experts out, or use gpt", config.network));
  const ModelConfig usual;
  const auto idle = [&](const char* key, const auto& value, const auto& left_out) {
    if (config.experts == 0 && value != left_out)
      throw ConfigError(fmt::format("model.{}={} is for model.experts, which is 0; set that, or leave model.{} out", key, value, key));
  };
  idle("experts_top", config.experts_top, usual.experts_top);
  idle("expert_capacity", config.expert_capacity, usual.expert_capacity);
  idle("balance", config.balance, usual.balance);
  idle("expert_every", config.expert_every, usual.expert_every);
}

}  // namespace

void ModelConfig::describe(Section& section) {
  std::vector<std::string_view> keys;
  for (const auto& entry : kNetworks) keys.push_back(entry.key);
  section.field("network", network, "the network").one_of(std::move(keys));
  section.field("input", input, "shape of a sample: [channels, height, width], for gpt [positions]; empty: that of the dataset")
      .at_least(1);
  section.field("classes", classes, "number of classes, for gpt the size of the vocabulary; 0: that of the dataset").at_least(0);
  section.field("hidden", hidden, "mlp: widths of the hidden layers").at_least(1);
  section.field("layers", layers, "gpt: number of blocks").at_least(1).at_most(10000);
  section.field("width", width, "gpt: features per position").at_least(1);
  section.field("heads", heads, "gpt: attention heads; must divide the width").at_least(1);
  section.field("tied", tied, "gpt: use the token embedding as the head's weight, as in GPT-2; false: the head has its own");
  section.field("experts", experts, "gpt: experts (MLPs) per block, among which a gate chooses for each position; 0: none").at_least(0);
  section.field("experts_top", experts_top, "gpt: number of experts that compute a position").at_least(1).at_most(2);
  section.field("expert_capacity", expert_capacity, "gpt: capacity of an expert, as a multiple of its even share of a sequence's positions")
      .above(0);
  section.field("balance", balance, "gpt: weight of the auxiliary loss that balances positions among experts").at_least(0);
  section.field("expert_every", expert_every, "gpt: every n-th block has experts; 1: all, 2: every second").at_least(1);
  section
      .field(
          "multiplier", multiplier,
          "resnets of the first form, vgg, alexnet, mobilenet_v1, cnn: multiplies channels and hidden features, rounded to multiples of 8")
      .above(0)
      .at_most(64);
  section.field("dropout", dropout, "probability of dropping an activation; below 0: the network's default").at_least(-1).at_most(0.99);
  section.field("zero_init_residual", zero_init_residual, "resnets: the last norm of a block starts at 0 (Goyal et al.)");
  section
      .field("init", init,
             "initial weights: as in the network's reference implementation (torchvision's resnets and vggs: normal by fan-out), or the "
             "defaults of PyTorch's layers")
      .one_of({"reference", "pytorch"});
  section.field("weights", weights, "safetensors file with the initial weights");
}

std::span<const Entry<MakeGraph>> networks() { return kNetworks; }

Graph make_graph(const ModelConfig& config) {
  Graph graph = find(networks(), "network", config.network).make(config);
  refuse_unused(config, graph);
  if (config.init == "pytorch") graph.draw_as_layers();
  return graph;
}

}  // namespace paceline::graph
