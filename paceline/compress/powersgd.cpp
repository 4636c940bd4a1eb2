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

#include "paceline/compress/device_code.h"
#include "paceline/compress/factor_layout.h"

namespace paceline::compress {
namespace {

class PowerSgd final : public Linear {
 public:
  PowerSgd(const CompressConfig& config, const RangeLayout& layout, std::uint64_t seed)
      : layout_(config, layout, seed),
        first_round_(static_cast<std::size_t>(layout_.dense_count + layout_.p_count)),
        q_(layout_.first_q()),
        own_q_(q_.size()) {}

  int rounds() const override { return 2; }

  Round round(int index, const float* values, void*) override {
    if (index == 0) {
      float* to = first_round_.data();
      for (const auto& run : layout_.dense) to = std::copy_n(values + run.offset, run.count, to);
      for (const Matrix& matrix : layout_.matrices) {
        orthonormalise(q_of(matrix), matrix.shape.columns, matrix.shape.rank, matrix.seed_of_q());
        multiply(matrix.shape, values + matrix.offset, q_of(matrix), p_of(matrix));
      }
      return {first_round_.data(), static_cast<std::int64_t>(first_round_.size()), Round::Type::f32};
    }
    for (const Matrix& matrix : layout_.matrices) {
      orthonormalise(p_of(matrix), matrix.shape.rows, matrix.shape.rank, matrix.seed_of_p());
      multiply_transposed(matrix.shape, values + matrix.offset, p_of(matrix), q_of(matrix));
    }
    own_q_ = q_;
    return {q_.data(), static_cast<std::int64_t>(q_.size()), Round::Type::f32};
  }

  void finish(float* values, float* mean, void*) override {
    for (const auto& gap : layout_.gaps) std::fill_n(mean + gap.offset, gap.count, 0.0f);
    const float* from = first_round_.data();
    for (const auto& run : layout_.dense) {
      std::copy_n(from, run.count, mean + run.offset);
      std::fill_n(values + run.offset, run.count, 0.0f);
      from += run.count;
    }
    for (const Matrix& matrix : layout_.matrices)
      reconstruct(matrix.shape, p_of(matrix), q_of(matrix), own_q_.data() + matrix.q, mean + matrix.offset, values + matrix.offset);
  }

  std::vector<float> state(void*) const override { return q_; }
  void set_state(std::span<const float> state, void*) override { std::ranges::copy(state, q_.begin()); }

 private:
  using Matrix = FactorLayout::Matrix;

  float* p_of(const Matrix& matrix) { return first_round_.data() + layout_.dense_count + matrix.p; }
  float* q_of(const Matrix& matrix) { return q_.data() + matrix.q; }

  FactorLayout layout_;
  std::vector<float> first_round_;  // dense values, then P of every matrix
  std::vector<float> q_, own_q_;
};

}  // namespace

Compressor powersgd() {
  return {.linear = [](const CompressConfig& config, const RangeLayout& layout, std::uint64_t seed) -> std::unique_ptr<Linear> {
            return std::make_unique<PowerSgd>(config, layout, seed);
          },
          .linear_on_gpu = powersgd_on_gpu};
}

}  // namespace paceline::compress
