#include "paceline/comm/nearest_mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>
#include <vector>

namespace paceline::comm {
namespace {

std::vector<MeshSizes> meshes_of(int ranks) {
  std::vector<MeshSizes> meshes;
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    if (ranks % tensor != 0) continue;
    for (int pipeline = 1; pipeline <= ranks / tensor; ++pipeline)
      if (ranks / tensor % pipeline == 0) meshes.push_back({ranks / tensor / pipeline, pipeline, tensor});
  }
  return meshes;
}

/// One division of exact products, so that equal distances are equal numbers.
double distance_between(const MeshSizes& wanted, const MeshSizes& mesh) {
  double larger = 1, smaller = 1;
  for (const auto& [asked, size] :
       {std::pair(wanted.data, mesh.data), std::pair(wanted.pipeline, mesh.pipeline), std::pair(wanted.tensor, mesh.tensor)})
    if (asked > 0) larger *= std::max(asked, size), smaller *= std::min(asked, size);
  return larger / smaller;
}

}  // namespace

MeshSizes with_one_rest(MeshSizes sizes) {
  if (sizes.data == 0 && (sizes.pipeline == 0 || sizes.tensor == 0)) sizes.data = 1;
  return sizes;
}

std::optional<MeshSizes> nearest_mesh(const MeshSizes& wanted, int ranks, const AcceptsMesh& accepts) {
  const MeshSizes asked = with_one_rest(wanted);
  std::vector<MeshSizes> meshes = meshes_of(ranks);
  std::ranges::stable_sort(meshes, {}, [&](const MeshSizes& mesh) {
    return std::tuple(distance_between(asked, mesh), std::abs(mesh.tensor - asked.tensor), mesh.pipeline);
  });
  const auto found = std::ranges::find_if(meshes, accepts);
  return found == meshes.end() ? std::nullopt : std::optional(*found);
}

std::string mesh_text(const MeshSizes& sizes) {
  return fmt::format("data={},pipeline={},tensor={}", sizes.data, sizes.pipeline, sizes.tensor);
}

}  // namespace paceline::comm
