// How an algorithm's file becomes an Algorithm: it lists its methods, one per collective, and algorithm<kMethods>() does the rest, so that
// what is offered, built and counted always agrees.
#pragma once

#include <array>

#include "paceline/schedule/step_list.h"

namespace paceline::schedule {

/// Both functions may rely on a checked problem: rank and root are ranks; chunks is not above count; a barrier has count 0 and one chunk.
/// The formula is called only if there are messages: size > 1, and count > 0 except for a barrier.
struct Method {
  Collective collective;
  void (*build)(StepList& list, const Problem& problem);
  Counts (*formula)(const Problem& problem);
};

Steps steps_of(std::span<const Method> methods, const Problem& problem);
Counts counts_of(std::span<const Method> methods, const Problem& problem);

template <const auto& kMethods>
inline constexpr auto kOffers = [] {
  std::array<Collective, std::size(kMethods)> offers{};
  for (std::size_t i = 0; i < offers.size(); ++i) offers[i] = kMethods[i].collective;
  return offers;
}();

/// `kMethods` is a constexpr array of Method at namespace scope.
template <const auto& kMethods>
Algorithm algorithm() {
  return {.steps = [](const Problem& problem) { return steps_of(kMethods, problem); },
          .formula = [](const Problem& problem) { return counts_of(kMethods, problem); },
          .offers = kOffers<kMethods>,
          .chunks = pipeline_chunks};
}

}  // namespace paceline::schedule
