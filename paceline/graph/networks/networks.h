// The functions of this folder's files for registry.cpp: one per key.
#pragma once

#include "paceline/graph/registry.h"

namespace paceline::graph {

Graph mlp(const ModelConfig& config);
Graph lenet5(const ModelConfig& config);
Graph cnn(const ModelConfig& config);
Graph alexnet(const ModelConfig& config);
Graph alexnet_ungrouped(const ModelConfig& config);
Graph vgg16(const ModelConfig& config);
Graph vgg19(const ModelConfig& config);
Graph resnet18(const ModelConfig& config);
Graph resnet20(const ModelConfig& config);
Graph resnet50(const ModelConfig& config);
Graph resnet50_v1(const ModelConfig& config);
Graph resnet50_v2(const ModelConfig& config);
Graph resnet50_v2_keras(const ModelConfig& config);
Graph inception_v3(const ModelConfig& config);
Graph inception_v3_torchvision(const ModelConfig& config);
Graph mobilenet_v1(const ModelConfig& config);
Graph gpt(const ModelConfig& config);

/// The recipe's dropout, or the network's own if the recipe does not set it.
inline double dropout_or(const ModelConfig& config, double own) { return config.dropout < 0 ? own : config.dropout; }

}  // namespace paceline::graph
