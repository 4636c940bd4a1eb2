// The mesh of a run as text, for its header: which ranks hold which units of the network, and which share of them.
#pragma once

#include <string>
#include <vector>

#include "paceline/comm/mesh.h"
#include "paceline/nn/model.h"

namespace paceline::train {

/// One line for the sizes, one for each stage, and one for what the ranks of a group share. `stages`: by virtual stage, as pipeline/ cuts
/// them. Empty if every rank has the whole model.
std::vector<std::string> describe_mesh(const comm::Mesh& mesh, const nn::Model& model, const std::vector<nn::Units>& stages, int zero);

}  // namespace paceline::train
