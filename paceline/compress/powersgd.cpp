// powersgd: every matrix of gradients M as a product P Qᵀ of two factors with few columns, by one step of power iteration per training
// step.
//
//   round 0: Q ← orthonormal(Q)      P = M Q      mean of P over the workers      P ← orthonormal(P)
//   round 1: Q = Mᵀ P                mean of Q over the workers
//   M is approximated by P Qᵀ; the next step starts from the mean Q
//
// Vogels, Karimireddy, Jaggi, "PowerSGD: practical low-rank gradient compression for distributed optimization", NeurIPS 2019, whose
// residual is M − P Qᵀ with the mean Q. Here a worker subtracts P times its own Q: the mean of the residuals, the only thing on which the
// next steps depend, is the same, and differences between workers do not accumulate in them. Vectors, and matrices that factors would not
// make smaller, are sent unchanged, in round 0. On the wire: 4 · rank · (rows + columns) bytes per matrix, 4 bytes per other value.
//
// Everything that is not averaged is computed only from averages and the seed, so P and Q have the same bits on all workers.
#include <algorithm>

#include "paceline/compress/compressor.h"
#include "paceline/compress/low_rank.h"

namespace paceline::compress {
namespace {

class PowerSgd final : public Linear {
 public:
  PowerSgd(const CompressConfig& config, const RangeLayout& layout, std::uint64_t seed) : seed_(seed) {
    std::int64_t dense = 0, p = 0, q = 0, end = 0;
    for (const Part& part : layout.parts) {
      gaps_.push_back({end, part.offset - end});
      end = part.offset + part.count;
      const Shape shape{part.rows, part.columns, std::min({config.rank, part.rows, part.columns})};
      if (part.rows > 1 && shape.rank * (part.rows + part.columns) < part.count) {
        matrices_.push_back({part.offset, shape, p, q});
        p += shape.rank * shape.rows;
        q += shape.rank * shape.columns;
      } else {
        dense_.push_back({part.offset, part.count});
        dense += part.count;
      }
    }
    gaps_.push_back({end, layout.length - end});
    first_round_.resize(static_cast<std::size_t>(dense + p));
    p_begin_ = dense;
    q_.resize(static_cast<std::size_t>(q));
    own_q_.resize(q_.size());
    for (const Matrix& matrix : matrices_) fill_random(q_of(matrix), matrix.shape.rank * matrix.shape.columns, seed_of(matrix));
  }

  int rounds() const override { return 2; }

  Round round(int index, const float* values) override {
    if (index == 0) {
      float* to = first_round_.data();
      for (const Run& run : dense_) to = std::copy_n(values + run.offset, run.count, to);
      for (const Matrix& matrix : matrices_) {
        orthonormalise(q_of(matrix), matrix.shape.columns, matrix.shape.rank, seed_of(matrix) + 1);
        multiply(matrix.shape, values + matrix.offset, q_of(matrix), p_of(matrix));
      }
      return {first_round_.data(), static_cast<std::int64_t>(first_round_.size()), Round::Type::f32};
    }
    for (const Matrix& matrix : matrices_) {
      orthonormalise(p_of(matrix), matrix.shape.rows, matrix.shape.rank, seed_of(matrix) + 2);
      multiply_transposed(matrix.shape, values + matrix.offset, p_of(matrix), q_of(matrix));
    }
    own_q_ = q_;
    return {q_.data(), static_cast<std::int64_t>(q_.size()), Round::Type::f32};
  }

  void finish(float* values, float* mean) override {
    for (const Run& gap : gaps_) std::fill_n(mean + gap.offset, gap.count, 0.0f);
    const float* from = first_round_.data();
    for (const Run& run : dense_) {
      std::copy_n(from, run.count, mean + run.offset);
      std::fill_n(values + run.offset, run.count, 0.0f);
      from += run.count;
    }
    for (const Matrix& matrix : matrices_)
      reconstruct(matrix.shape, p_of(matrix), q_of(matrix), own_q_.data() + matrix.q, mean + matrix.offset, values + matrix.offset);
  }

  std::span<float> state() override { return q_; }

 private:
  struct Run {
    std::int64_t offset, count;
  };
  struct Matrix {
    std::int64_t offset;
    Shape shape;
    std::int64_t p, q;  // offsets of the factors
  };

  float* p_of(const Matrix& matrix) { return first_round_.data() + p_begin_ + matrix.p; }
  float* q_of(const Matrix& matrix) { return q_.data() + matrix.q; }
  std::uint64_t seed_of(const Matrix& matrix) const { return seed_ * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(matrix.offset) * 4; }

  std::uint64_t seed_;
  std::vector<Run> gaps_, dense_;
  std::vector<Matrix> matrices_;
  std::vector<float> first_round_;  // dense values, then P of every matrix
  std::int64_t p_begin_ = 0;
  std::vector<float> q_, own_q_;
};

}  // namespace

Compressor powersgd() {
  return {.linear = [](const CompressConfig& config, const RangeLayout& layout, std::uint64_t seed) -> std::unique_ptr<Linear> {
    return std::make_unique<PowerSgd>(config, layout, seed);
  }};
}

}  // namespace paceline::compress
