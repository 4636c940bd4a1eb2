// The built-in networks: one row each in registry.cpp, one file each in networks/.
#pragma once

#include <span>

#include "paceline/base/config.h"
#include "paceline/base/registry.h"
#include "paceline/graph/graph.h"

namespace paceline::graph {

/// [model] of a recipe. Zero or empty means: the network's usual value, or what the dataset asks for.
struct ModelConfig {
  std::string network = "lenet5";
  std::vector<std::int64_t> input = {};             // {channels, height, width}; {positions} for gpt
  std::int64_t classes = 0;                         // classes, or vocabulary
  std::vector<std::int64_t> hidden = {128};         // mlp: widths of the hidden layers
  std::int64_t layers = 4, width = 128, heads = 4;  // gpt
  bool tied = false;                                // gpt: the head's weight is the token embedding
  std::int64_t experts = 0, experts_top = 1;        // gpt: MLPs of a block with experts, and how many of them see a position
  double expert_capacity = 1.25, balance = 0.01;    // gpt: room of an expert; weight of the balance loss
  std::int64_t expert_every = 2;                    // gpt: every n-th block has experts
  double multiplier = 1;                            // of the channels of convolutional networks (MobileNet's width multiplier)
  double dropout = -1;                              // below 0: the network's own
  bool zero_init_residual = false;                  // resnets: the last norm of a block starts at 0 (Goyal et al.)
  std::string init = "reference";                   // reference, pytorch: how initial weights are drawn
  std::string weights = {};                         // a safetensors file to start from

  void describe(Section& section);
};

using MakeGraph = Graph (*)(const ModelConfig&);

std::span<const Entry<MakeGraph>> networks();

/// The graph of config.network.
Graph make_graph(const ModelConfig& config);

}  // namespace paceline::graph
