// What a mesh needs at least, however it is used: so that many numbers of workers can be tried where nothing fits.
#pragma once

#include <map>
#include <tuple>

#include "paceline/memory/estimate.h"
#include "paceline/perf/plan.h"

namespace paceline::perf {

/// Keeps what it learns of a network, so that the next mesh is cheap. The question outlives it; its number of workers does not matter.
class PlanFloor {
 public:
  explicit PlanFloor(const PlanQuestion& question) : question_(question), network_(*question.graph) {}

  /// Bytes that some rank needs on every mesh with these data and tensor axes: those of the unit that needs most on a rank of its own, one
  /// sample at a time. 0 where data-parallel ranks may share layers, which are then no part of a unit's state.
  std::int64_t of(const Choice& mesh) const;
  /// Whether something fits a device on one of these meshes.
  bool any_fits(const std::vector<Choice>& meshes) const;

 private:
  std::int64_t counted(const Choice& mesh) const;

  const PlanQuestion& question_;
  memory::Estimator network_;
  mutable std::map<std::tuple<int, int, bool>, std::int64_t> known_ = {};  // by data and tensor axes, and whether positions are shared
};

}  // namespace paceline::perf
