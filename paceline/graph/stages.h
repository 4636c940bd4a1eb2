// Where a model is cut into the stages of a pipeline: at borders of units, so that the slowest stage is as fast as possible.
//
// Both the pipeline and the memory estimate use this. A run makes its cut once and passes it on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "paceline/graph/graph.h"

namespace paceline::graph {

/// Units [first, last) of a model.
struct Units {
  std::size_t first = 0, last = 0;
  bool operator==(const Units&) const = default;
};

struct UnitCost {
  std::string name;
  double time = 0;  // of a sample, forward and backward, in any unit
};

/// Counted from the description: multiplications, and bytes of activations for the layers that only move them.
std::vector<UnitCost> counted_costs(const Graph& graph);

/// Virtual stage s is chunk s / ranks of rank s % ranks (schedule/pipeline.h).
struct StageCount {
  int ranks = 1, chunks = 1;
  std::size_t all() const { return static_cast<std::size_t>(ranks) * static_cast<std::size_t>(chunks); }
};

/// Whether a rank's memory suffices for these units as that virtual stage.
using StageFits = std::function<bool(std::size_t stage, const Units& units)>;

/// The units of each virtual stage, consecutive and none empty: of all cuts whose stages fit, the one whose slowest stage is
/// fastest, and among those the most even one; empty if no cut fits. ConfigError if there are more stages than units; it names the
/// nearest choice that works.
std::vector<Units> cut_stages(const std::vector<UnitCost>& units, const StageCount& count, const StageFits& fits = nullptr);

/// The units that one rank holds: its chunks, in their order.
std::vector<Units> held_by(const std::vector<Units>& stages, int ranks, int rank);

}  // namespace paceline::graph
