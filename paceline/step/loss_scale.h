// Dynamic loss scaling for gradients in fp16, whose small values would be rounded to 0: the loss is multiplied by a scale, and the update
// divides by it (Micikevicius et al., "Mixed precision training", 2018). A step whose gradients overflow on any rank is skipped on all of
// them and the scale is halved; after many good steps it is doubled.
#pragma once

#include <vector>

#include "paceline/step/strategy.h"

namespace paceline::step {

class LossScale {
 public:
  static constexpr double kFirst = 65536, kLeast = 1;
  static constexpr std::int64_t kGoodSteps = 2000;  // until it is doubled

  /// Whether the arena stores gradients in fp16.
  static bool needed(const tensor::Arena& arena);
  /// Scales if it is needed. What it refers to must outlive it.
  explicit LossScale(const Context& context);

  bool on() const { return on_; }
  double scale() const { return scale_; }  // 1 if it is off
  /// The number by which the sum of the workers' gradients is divided. With a loss scale it is 1: fp16 sums could overflow even if the mean
  /// does not, so each gradient is a share of the mean from the start.
  int divisor(int workers) const { return on_ ? 1 : workers; }
  std::int64_t skipped() const { return skipped_; }

  /// Whether to make the step, because all ranks' gradients are finite; sets the scale of the next one. Collective.
  bool accepts(bool finite);

  std::vector<NamedTensor> save() const;
  void load(std::span<const NamedTensor> state);

 private:
  const comm::Mesh& mesh_;
  bool on_;
  double scale_ = 1;
  std::int64_t good_ = 0, skipped_ = 0;
};

}  // namespace paceline::step
