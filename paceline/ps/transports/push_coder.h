// Compressed pushes: the worker's half, with its residual, and the server's half.
//
//   worker   a = g + e; send Q(a); e ← a − Q(a)          server   gradient = Q(a)
//
// Any compressor works whose code can be decoded without the other workers: all coders, and the linear compressors that are casts (fp16,
// bf16). PowerSGD needs the other workers between its two rounds. Deep Gradient Compression puts the worker's momentum into the residual;
// the server's optimizer must then have none.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/compress/feedback.h"

namespace paceline::ps {

/// Workers and servers must have the same.
struct PushCompression {
  std::string name;  // empty: none
  compress::CompressConfig settings = {};
  std::uint64_t seed = 0;
  double momentum = 0;  // dgc: the worker's
  int workers = 1;      // dgc: the workers that share the norm of dgc_clip

  /// What both sides must agree on.
  std::string describe() const;
  /// ConfigError if the compressor cannot be used for pushes. `replica`: workers of the rule push parameters.
  void check(bool replica) const;
};

/// One range of the arena, on the worker.
class PushEncoder {
 public:
  /// ConfigError if the compressor cannot be used for pushes; it names those that can. `place` identifies the range, `length` is that of
  /// the whole arena.
  PushEncoder(const PushCompression& compression, const compress::RangeLayout& range, int worker, std::int64_t place, std::int64_t length);

  /// The code, valid until the next call. Overwrites `gradient`.
  std::span<const std::byte> encode(float* gradient, double epoch);
  /// Whether the last code, or the residual that it left, is not finite: then the code must not be sent, and the residual has been reset to
  /// zero.
  bool overflowed() const { return overflowed_; }

  // What it keeps from push to push; refers to its own memory.
  std::span<float> residual() { return residual_; }
  std::span<float> velocity() { return velocity_; }
  std::int64_t& pushes() { return context_.step; }

 private:
  compress::Feedback feedback_;
  compress::RangeLayout range_;
  bool overflowed_ = false;
  std::unique_ptr<compress::Coder> coder_;
  std::unique_ptr<compress::Linear> cast_;
  compress::CodingContext context_;
  std::vector<float> residual_, velocity_;
  std::vector<std::byte> code_;
};

/// The same range, on the server; one for each worker.
class PushDecoder {
 public:
  PushDecoder(const PushCompression& compression, const compress::RangeLayout& range);

  std::int64_t bound() const;  // of a code, in bytes
  /// Throws DataError if the code is not one of this range.
  void decode(std::span<const std::byte> code, float* gradient) const;

 private:
  compress::RangeLayout range_;
  std::unique_ptr<compress::Coder> coder_;
  compress::Round::Type cast_ = compress::Round::Type::f32;
};

}  // namespace paceline::ps
