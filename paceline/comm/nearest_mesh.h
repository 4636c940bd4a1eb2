// Which mesh to advise in place of one that is refused.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "paceline/comm/mesh.h"

namespace paceline::comm {

/// Whether a mesh, all of whose sizes are given, would be accepted.
using AcceptsMesh = std::function<bool(const MeshSizes&)>;

/// Of the meshes of exactly this many ranks that are accepted, the one whose sizes differ from the wanted ones by the smallest factors; a
/// wanted 0 is as near to every size. Among equally near meshes, the one that keeps the tensor axis, then the one with the fewest stages.
/// Nothing if none is accepted.
std::optional<MeshSizes> nearest_mesh(const MeshSizes& wanted, int ranks, const AcceptsMesh& accepts);

/// The sizes, of which one at most is 0: data, whose default that is, becomes 1 if another axis takes the rest.
MeshSizes with_one_rest(MeshSizes sizes);

/// "data=2,pipeline=1,tensor=4", as parse_mesh() reads it.
std::string mesh_text(const MeshSizes& sizes);

}  // namespace paceline::comm
