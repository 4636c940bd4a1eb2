#include "paceline/schedule/schedule.h"

#include <algorithm>

namespace paceline::schedule {

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::allreduce: return "allreduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
    case Collective::broadcast: return "broadcast";
    case Collective::reduce: return "reduce";
    case Collective::all_to_all: return "all_to_all";
    case Collective::barrier: return "barrier";
  }
  throw InternalError("a collective without a name");
}

Counts count(std::span<const Step> steps) {
  Counts counts;
  for (const Step& step : steps) {
    if (step.stays()) continue;
    counts.rounds = std::max(counts.rounds, step.round + 1);
    if (step.leaves()) counts.sent += step.range.size();
    if (step.is_added()) counts.reduced += step.range.size();
  }
  return counts;
}

std::int64_t pipeline_chunks(const Problem&, std::int64_t bytes) {
  constexpr std::int64_t kChunkBytes = 128 << 10, kMostChunks = 64;
  return std::clamp<std::int64_t>(bytes / kChunkBytes, 1, kMostChunks);
}

Problem Algorithm::sized(Problem problem, std::int64_t bytes, bool shares_memory) const {
  problem.chunks = chunks(problem, bytes);
  problem.short_sum = shares_memory && lowering.short_sum != nullptr && lowering.short_sum(problem, bytes);
  return problem;
}

bool Algorithm::offer(Collective collective) const { return std::ranges::find(offers, collective) != offers.end(); }

}  // namespace paceline::schedule
