// A lower bound of the memory that a mesh needs, however it is used, so that many numbers of workers can be tried quickly if nothing fits.
#pragma once

#include <map>
#include <tuple>

#include "paceline/memory/estimate.h"
#include "paceline/perf/plan.h"

namespace paceline::perf {

/// Caches results about a network, so that the next mesh is cheap. The question must outlive it; its number of workers does not matter.
class PlanFloor {
 public:
  explicit PlanFloor(const PlanQuestion& question) : question_(question), network_(*question.graph) {}

  /// Bytes that at least one rank needs on every mesh with these data and tensor axes: those of the unit that needs the most, alone on a
  /// rank, with one sample at a time. 0 if data-parallel ranks may share layers, which then are not part of a unit's state.
  std::int64_t of(const Choice& mesh) const;
  /// Whether any choice on these meshes may fit a device.
  bool any_fits(const std::vector<Choice>& meshes) const;

 private:
  std::int64_t counted(const Choice& mesh) const;

  const PlanQuestion& question_;
  memory::Estimator network_;
  mutable std::map<std::tuple<int, int, bool>, std::int64_t> known_ = {};  // by data and tensor axes, and whether positions are shared
};

}  // namespace paceline::perf
