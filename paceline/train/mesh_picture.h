// The mesh of a run in words, for its header: which ranks have which units of the network, and which share of them.
#pragma once

#include <string>
#include <vector>

#include "paceline/comm/mesh.h"
#include "paceline/nn/model.h"

namespace paceline::train {

/// A line for the sizes, one for each stage, and one for what the ranks of a group share. `stages`: by virtual stage, as pipeline/ cuts
/// them. Empty where every rank has the whole model.
std::vector<std::string> describe_mesh(const comm::Mesh& mesh, const nn::Model& model, const std::vector<nn::Units>& stages, int zero);

}  // namespace paceline::train
