// The result of playing a step's programs, as sums that grow by the same amount with every further round of micro-batches once the pipeline
// has filled. So a step of thousands of micro-batches need not be played: its cost follows from those of three short ones.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/perf/step_cost.h"

namespace paceline::perf {

struct Price;

/// The uncertainty of a step's communication.
struct TalkDoubt {
  ByAxis seconds, error_s;
  std::map<std::string_view, double> outside;  // seconds by Price::outside

  void add(schedule::Action::Axis axis, const Price& price);
  void add(const TalkDoubt& other);
  double error(const ByAxis& exposed) const;
  /// Notes about the largest of the parts in `outside`, if these are large.
  std::vector<std::string> notes() const;
};

struct PlayedStep {
  double seconds = 0;
  std::vector<StageCost> stages;
  std::vector<double> busy;  // by stage: seconds of its compute lane, without waiting
  TalkDoubt doubt;
};

/// A step of this many micro-batches, derived by `play` from three shorter ones, each of which has one more round of micro-batches than the
/// previous one and takes equally much longer. `round` must be a multiple of the number of stages; longer rounds are tried until the
/// pipeline has settled. Nullopt if playing the step itself is faster.
std::optional<PlayedStep> play_longer(const std::function<PlayedStep(std::int64_t micro_batches)>& play, std::int64_t micro_batches,
                                      std::int64_t round);

}  // namespace paceline::perf
