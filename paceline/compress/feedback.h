// What happens between a gradient and its encoding: error feedback, and momentum if the compressor applies it. The same for an allreduce
// and for pushes to a server.
//
//   v ← v + g                                  any compressor
//   u ← m·u + s·g        v ← v + u             with momentum correction (dgc); s clips g
//   encode v, which becomes what was not sent; u ← 0 where v is 0
//
// Velocities accumulate before they are sent, so each of M workers clips its own gradients, to a share of the norm that the sum may have:
// dgc_clip / √M for all parameters, and √s of that for a range with the share s of them, since the other ranges are not known yet.
#pragma once

#include "paceline/compress/compressor.h"

namespace paceline::compress {

class Feedback {
 public:
  /// What a range keeps from step to step; initially zeros. The caller owns the memory.
  struct Kept {
    float* residual = nullptr;  // v
    float* velocity = nullptr;  // u, if has_velocity()
    std::int64_t count = 0;
  };

  /// `momentum`: of the recipe's optimizer. `length`: of all ranges together.
  Feedback(const Compressor& compressor, const CompressConfig& settings, double momentum, int workers, std::int64_t length);

  bool keeps() const { return keeps_; }  // whether it keeps what was not sent
  bool has_velocity() const { return has_velocity_; }
  float momentum() const { return momentum_; }
  /// The norm to which a gradient of this many elements is clipped; 0: not clipped.
  double most_norm(std::int64_t count) const;
  /// Turns kept.residual into the values to encode.
  void add(const float* gradient, const Kept& kept) const;
  /// To be called after it was encoded.
  void said(const Kept& kept) const;

 private:
  float clip(const float* gradient, std::int64_t count) const;

  bool keeps_, has_velocity_;
  float momentum_;
  double norm_, length_;  // of a worker's whole gradient, 0: not clipped; in elements
};

}  // namespace paceline::compress
