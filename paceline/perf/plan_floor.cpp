#include "paceline/perf/plan_floor.h"

#include <algorithm>

#include "paceline/graph/units.h"
#include "paceline/perf/plan_space.h"
#include "paceline/schedule/pipeline.h"

namespace paceline::perf {
namespace {

/// The largest number of chunks per rank: a rank may hold the activations of only one of them.
int most_chunks() {
  int most = 1;
  for (const auto& entry : schedule::pipelines()) most = std::max(most, schedule::resolve_chunks(entry, 0));
  return most;
}

}  // namespace

// Messages are left out: a rank with several units needs none between them.
std::int64_t PlanFloor::counted(const Choice& mesh) const {
  using memory::Category;
  memory::Plan plan = memory_plan(question_, mesh);
  const std::size_t units = graph::units_of(*question_.graph).size();
  plan.pipeline = static_cast<int>(units), plan.schedule = "1f1b", plan.chunks = 1, plan.hybrid = "none";
  plan.samples = plan.micro_batches = 1, plan.recompute = "all";
  std::vector<graph::Units> stages;
  for (std::size_t unit = 0; unit < units; ++unit) stages.push_back({unit, unit + 1});
  const int chunks = most_chunks();
  std::int64_t least = 0;
  for (plan.zero = plan.data > 1 ? 1 : 0; plan.zero <= (plan.data > 1 ? 3 : 0); ++plan.zero) {
    std::int64_t most = 0;
    for (const memory::RankKind& kind : network_.estimate(plan, stages))
      most = std::max(most, kind.bytes.state() + kind.bytes[Category::buffers] + kind.bytes[Category::activations] / chunks);
    least = least == 0 ? most : std::min(least, most);
  }
  return least;
}

std::int64_t PlanFloor::of(const Choice& mesh) const {
  if (mesh.program.pipeline == 1 && mesh.program.tensor == 1) return 0;
  const auto [found, missing] = known_.try_emplace({mesh.program.data, mesh.program.tensor, mesh.sequence});
  if (missing) found->second = counted(mesh);
  return found->second;
}

bool PlanFloor::any_fits(const std::vector<Choice>& meshes) const {
  const std::int64_t limit = memory_limit(question_);
  return std::ranges::any_of(meshes, [&](const Choice& mesh) {
    if (of(mesh) > limit) return false;
    return std::ranges::any_of(frugal_choices_on(question_, mesh),
                               [&](const Choice& choice) { return bytes_needed(question_, network_, choice) <= limit; });
  });
}

}  // namespace paceline::perf
