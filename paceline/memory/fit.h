// Whether a run fits into the memory of its ranks, and the nearest mesh, ZeRO stage or recomputation with which it does.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "paceline/memory/estimate.h"

namespace paceline::memory {

/// The memory that a rank may use.
struct Limit {
  std::int64_t bytes = 0;
  std::string source = {};  // where it comes from: "train.memory_gb"
  int places = 0;           // above 0: `bytes` is the memory of one host or GPU, and the ranks are divided evenly among this many of them

  int sharing(int ranks) const { return places > 0 ? (ranks + places - 1) / places : 1; }
  std::int64_t of_rank(int ranks) const { return bytes / sharing(ranks); }
};

/// The memory that a plan would need.
struct Need {
  std::int64_t bytes = 0;                    // of the rank that needs the most
  std::int64_t mean = 0;                     // over all ranks
  std::string rank;                          // its kind
  Category category = Category::parameters;  // the largest one of that rank
  std::int64_t of_category = 0;
};
/// `stages`: as in estimate().
Need need_of(const graph::Graph& graph, const Plan& plan, const std::vector<graph::Units>& stages = {});
Need need_of(const Estimator& network, const Plan& plan, const std::vector<graph::Units>& stages = {});

/// The plan that a run would use for a given mesh, ZeRO stage and recomputation.
struct Settled {
  Plan plan;
  std::string also = {};  // a further setting that it needs
};
/// ConfigError if the run would refuse them.
using Settle = std::function<Settled(const Plan&)>;

/// A change of a plan, as flags and settings of the command line: "--mesh data=1,tensor=2 train.recompute=units".
struct Change {
  std::string settings;
  std::int64_t bytes = 0;
};
/// The smallest change that fits the limit: first recomputation, which only costs time; then what the same ranks can share, by ZeRO and by
/// the mesh; then more ranks along any axis. Nullopt if none fits. Without `settle`, only changes that the network itself makes impossible
/// are excluded.
std::optional<Change> nearest_fit(const graph::Graph& graph, const Plan& plan, const Limit& limit, const Settle& settle = nullptr);

/// ConfigError if a rank of the plan needs more than the limit, or, if ranks share the memory, if they do together.
void require_fit(const graph::Graph& graph, const Plan& plan, const Limit& limit, const std::vector<graph::Units>& stages = {},
                 const Settle& settle = nullptr);

}  // namespace paceline::memory
