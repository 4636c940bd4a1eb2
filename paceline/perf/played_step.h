// What playing a step's programs comes to, as sums that grow by the same amount with every further round of micro-batches once a pipeline
// has filled. So a step of thousands of micro-batches need not be played: three short ones say what it takes.
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

/// How well a step's communication is known.
struct TalkDoubt {
  ByAxis seconds, error_s;
  std::map<std::string_view, double> outside;  // seconds by Price::outside

  void add(schedule::Action::Axis axis, const Price& price);
  double error(const ByAxis& exposed) const;
  /// About most of what lies outside, if that is much.
  std::vector<std::string> notes() const;
};

struct PlayedStep {
  double seconds = 0;
  std::vector<StageCost> stages;
  std::vector<double> busy;  // by stage: seconds of all that its compute lane does, waiting left out
  TalkDoubt doubt;
};

/// A step of so many micro-batches, from `play` of three shorter ones, each of which has a round of micro-batches more than the one before
/// and takes as much longer. While a pipeline has not settled, longer rounds than `round`, which its stages divide. Nothing where that
/// takes longer than to play the step itself.
std::optional<PlayedStep> play_longer(const std::function<PlayedStep(std::int64_t micro_batches)>& play, std::int64_t micro_batches,
                                      std::int64_t round);

}  // namespace paceline::perf
