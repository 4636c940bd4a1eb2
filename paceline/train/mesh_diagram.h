// The mesh of a run as text, for its header: which ranks hold which units of the network, and which share of them.
#pragma once

#include <string>
#include <vector>

#include "paceline/comm/mesh.h"
#include "paceline/nn/model.h"

namespace paceline::train {

/// The sizes, what each stage's ranks hold, and what ranks share: layers, experts, state. Long lines are broken. `stages`: by virtual
/// stage, as pipeline/ cuts them. Empty for one rank.
std::vector<std::string> describe_mesh(const comm::Mesh& mesh, const nn::Model& model, const std::vector<nn::Units>& stages, int zero);

}  // namespace paceline::train
