// Carries compression state across a change in the number of workers. A single worker sends nothing, so it compresses nothing: it applies,
// once, the residuals that earlier workers left, and later workers can start from its state.
//
// Residuals: r, the mean of the workers' residuals plus the sum of the second residuals (each covers a slice of the mean), is what the mean
// gradient still lacks; a single worker adds it to its first gradient. If the compressor carries the momentum (dgc), residuals consist of
// velocities u instead of gradients. The optimizer's momentum m turns a gradient g into g / (1 − m) over time, so r corresponds to a
// gradient of (1 − m)·r.
#pragma once

#include "paceline/step/strategy.h"

namespace paceline::data_parallel {

inline constexpr const char *kResidual = "compress.residual", *kSecondResidual = "compress.second_residual",
                            *kVelocity = "compress.momentum";

/// A checkpoint's state with the momentum where `context` expects it: with the workers' residuals if there are several workers and the
/// compressor carries it, otherwise with the optimizer. Of the momentum that several workers saved, it takes the mean.
std::vector<step::NamedTensor> with_momentum_in_place(const step::Context& context, std::span<const step::NamedTensor> state);

/// The residual that one worker still has to add to a gradient. The context must outlive it.
class ResidualCarryover {
 public:
  explicit ResidualCarryover(const step::Context& context) : context_(context) {}

  bool any() const { return residual_.defined(); }
  /// Adds the residual to the arena's gradients [begin, end), once; the calls of one step together cover the whole arena.
  void apply(std::int64_t begin, std::int64_t end);

  std::vector<step::NamedTensor> save() const;
  void load(std::span<const step::NamedTensor> state);

 private:
  const step::Context& context_;
  at::Tensor residual_;  // [length]; undefined once all of it has been applied
  std::int64_t left_ = 0;
};

}  // namespace paceline::data_parallel
