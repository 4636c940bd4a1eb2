// Whether a run fits into a rank's memory, and the nearest mesh, stage of ZeRO's or recomputation that does.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "paceline/memory/estimate.h"

namespace paceline::memory {

/// What a rank may need.
struct Limit {
  std::int64_t bytes = 0;
  std::string source = {};  // where it comes from: "train.memory_gb"
  int places = 0;           // above 0: the bytes are those of a host, or of a GPU, and so many of them are shared evenly by all ranks

  int sharing(int ranks) const { return places > 0 ? (ranks + places - 1) / places : 1; }
  std::int64_t of_rank(int ranks) const { return bytes / sharing(ranks); }
};

/// What a plan would need.
struct Need {
  std::int64_t bytes = 0;                    // of the rank that needs most
  std::int64_t mean = 0;                     // over all ranks
  std::string rank;                          // its kind
  Category category = Category::parameters;  // that holds most
  std::int64_t of_category = 0;
};
/// `stages`: as in estimate().
Need need_of(const graph::Graph& graph, const Plan& plan, const std::vector<graph::Units>& stages = {});
Need need_of(const Estimator& network, const Plan& plan, const std::vector<graph::Units>& stages = {});

/// What a run would make of a plan's mesh, stage and recomputation.
struct Settled {
  Plan plan;
  std::string also = {};  // a setting that it needs besides
};
/// ConfigError if the run would refuse them.
using Settle = std::function<Settled(const Plan&)>;

/// A change of a plan as the command line says it: "--mesh data=1,tensor=2 train.recompute=units".
struct Change {
  std::string settings;
  std::int64_t bytes = 0;
};
/// The smallest change that fits the limit: recomputation first, which costs time alone; then what the same ranks can share, by ZeRO's
/// stages and by the mesh; then more ranks along any axis. Nothing if none of them does. Without `settle`, a run refuses what the network
/// alone makes impossible.
std::optional<Change> nearest_fit(const graph::Graph& graph, const Plan& plan, const Limit& limit, const Settle& settle = nullptr);

/// ConfigError if a rank of the plan needs more than the limit, or, if ranks share it, all of them together.
void require_fit(const graph::Graph& graph, const Plan& plan, const Limit& limit, const std::vector<graph::Units>& stages = {},
                 const Settle& settle = nullptr);

}  // namespace paceline::memory
