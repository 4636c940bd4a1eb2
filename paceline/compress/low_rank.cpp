#include "paceline/compress/low_rank.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "paceline/base/simd.h"
#include "paceline/compress/draws.h"
#include "paceline/compress/lanes.h"

namespace paceline::compress {
namespace {

constexpr int kMostRank = 8;  // columns that a kernel takes at once; more are done in several passes over the matrix

/// One pass over the matrix with `rank` ≤ kMostRank columns.
struct Pass {
  std::int64_t rows, columns;
  const float* m = nullptr;
  float* p = nullptr;
  float* q = nullptr;
  const float* q_own = nullptr;
  float* mean = nullptr;
  float* values = nullptr;
  bool first = true;
};

/// acc[row][column of Q] for a few rows at a time, so that every loaded number of Q serves all of them.
template <int rank>
struct Multiply {
  using Arguments = Pass;

  [[gnu::always_inline]] static void run(const Pass& pass) {
    constexpr int kRows = rank <= 2 ? 8 / rank : rank <= 4 ? 4 : 2;
    std::int64_t i = 0;
    for (; i + kRows <= pass.rows; i += kRows) rows<kRows>(pass, i);
    for (; i < pass.rows; ++i) rows<1>(pass, i);
  }

 private:
  template <int kRows>
  [[gnu::always_inline]] static void rows(const Pass& pass, std::int64_t begin) {
    Floats sums[kRows][rank] = {};
    const auto add = [&](std::int64_t j, std::int64_t count) PACELINE_INLINE {
      Floats q[rank];
#pragma GCC unroll 8
      for (int r = 0; r < rank; ++r) q[r] = load_lanes(pass.q + r * pass.columns + j, count);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        const Floats m = load_lanes(pass.m + (begin + row) * pass.columns + j, count);
#pragma GCC unroll 8
        for (int r = 0; r < rank; ++r) sums[row][r] += m * q[r];
      }
    };
    std::int64_t j = 0;
    for (; j + kLanes <= pass.columns; j += kLanes) add(j, kLanes);
    if (j < pass.columns) add(j, pass.columns - j);
    for (int row = 0; row < kRows; ++row)
      for (int r = 0; r < rank; ++r) pass.p[r * pass.rows + begin + row] = static_cast<float>(sum_of(sums[row][r]));
  }
};

template <int rank>
struct MultiplyTransposed {
  using Arguments = Pass;
  static constexpr int kRows = 4;

  [[gnu::always_inline]] static void run(const Pass& pass) {
    std::fill_n(pass.q, rank * pass.columns, 0.0f);
    std::int64_t i = 0;
    for (; i + kRows <= pass.rows; i += kRows) rows<kRows>(pass, i);
    for (; i < pass.rows; ++i) rows<1>(pass, i);
  }

 private:
  template <int count>
  [[gnu::always_inline]] static void rows(const Pass& pass, std::int64_t begin) {
    float p[count][rank];
    for (int row = 0; row < count; ++row)
      for (int r = 0; r < rank; ++r) p[row][r] = pass.p[r * pass.rows + begin + row];
    const float* m = pass.m + begin * pass.columns;
    float* const q = pass.q;
    const std::int64_t columns = pass.columns;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < columns; ++j) {
#pragma GCC unroll 8
      for (int r = 0; r < rank; ++r) {
        float sum = q[r * columns + j];
#pragma GCC unroll 4
        for (int row = 0; row < count; ++row) sum += m[row * columns + j] * p[row][r];
        q[r * columns + j] = sum;
      }
    }
  }
};

template <int rank>
struct Reconstruct {
  using Arguments = Pass;

  [[gnu::always_inline]] static void run(const Pass& pass) {
    for (std::int64_t i = 0; i < pass.rows; ++i) {
      if (pass.first) row<true>(pass, i);
      else row<false>(pass, i);
    }
  }

 private:
  template <bool first>
  [[gnu::always_inline]] static void row(const Pass& pass, std::int64_t i) {
    float p[rank];
    for (int r = 0; r < rank; ++r) p[r] = pass.p[r * pass.rows + i];
    const float *const q = pass.q, *const own = pass.q_own;
    float *const mean = pass.mean + i * pass.columns, *const values = pass.values + i * pass.columns;
    const std::int64_t columns = pass.columns;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < columns; ++j) {
      float agreed = p[0] * q[j], said = p[0] * own[j];
#pragma GCC unroll 8
      for (int r = 1; r < rank; ++r) {
        agreed += p[r] * q[r * columns + j];
        said += p[r] * own[r * columns + j];
      }
      mean[j] = first ? agreed : mean[j] + agreed;
      values[j] -= said;
    }
  }
};

template <template <int> class Kernel, int... ranks>
void run_with_rank(std::int64_t rank, const Pass& pass, std::integer_sequence<int, ranks...>) {
  ((rank == ranks + 1 ? Simd<Kernel<ranks + 1>>::run(pass) : void()), ...);
}

/// Runs the kernel once for each kMostRank columns of the factors.
template <template <int> class Kernel>
void in_passes(const Shape& shape, Pass pass) {
  for (std::int64_t done = 0; done < shape.rank; done += kMostRank) {
    const std::int64_t rank = std::min<std::int64_t>(kMostRank, shape.rank - done);
    pass.first = done == 0;
    run_with_rank<Kernel>(rank, pass, std::make_integer_sequence<int, kMostRank>());
    pass.p += rank * shape.rows;
    pass.q += rank * shape.columns;
    if (pass.q_own != nullptr) pass.q_own += rank * shape.columns;
  }
}

double dot(const float* a, const float* b, std::int64_t n) {
  double lanes[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) lanes[i % kLanes] += static_cast<double>(a[i]) * b[i];
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

/// Subtracts from a column its projection onto those before; returns the norm of the rest. Not contracted: see base/simd.h.
[[gnu::optimize("fp-contract=off")]] double remove_projections(const float* before, std::int64_t count, float* column, std::int64_t n) {
  for (std::int64_t r = 0; r < count; ++r) {
    const double common = dot(before + r * n, column, n);
    for (std::int64_t i = 0; i < n; ++i) column[i] = static_cast<float>(column[i] - common * before[r * n + i]);
  }
  return std::sqrt(dot(column, column, n));
}

}  // namespace

void multiply(const Shape& shape, const float* m, const float* q, float* p) {
  in_passes<Multiply>(shape, {.rows = shape.rows, .columns = shape.columns, .m = m, .p = p, .q = const_cast<float*>(q)});
}

void multiply_transposed(const Shape& shape, const float* m, const float* p, float* q) {
  in_passes<MultiplyTransposed>(shape, {.rows = shape.rows, .columns = shape.columns, .m = m, .p = const_cast<float*>(p), .q = q});
}

void reconstruct(const Shape& shape, const float* p, const float* q_mean, const float* q_own, float* mean, float* values) {
  in_passes<Reconstruct>(shape, {.rows = shape.rows,
                                 .columns = shape.columns,
                                 .p = const_cast<float*>(p),
                                 .q = const_cast<float*>(q_mean),
                                 .q_own = q_own,
                                 .mean = mean,
                                 .values = values});
}

void fill_random(float* values, std::int64_t n, std::uint64_t seed) {
  const Draws draws(CodingContext{.seed = seed});
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t drawn = draws.word(static_cast<std::uint32_t>(i));
    values[i] = static_cast<float>(static_cast<std::int32_t>(drawn) >> 8) * 0x1p-23f;
  }
}

void orthonormalise(float* columns, std::int64_t n, std::int64_t rank, std::uint64_t seed) {
  constexpr double kDependent = 1e-5;  // of a column's norm: a smaller rest is rounding
  for (std::int64_t r = 0; r < rank; ++r) {
    float* column = columns + r * n;
    double before = std::sqrt(dot(column, column, n));
    if (!std::isfinite(before)) continue;
    double left = remove_projections(columns, r, column, n);
    for (std::int64_t attempt = 0; !(left > kDependent * before); ++attempt) {
      fill_random(column, n, seed_of_try(seed, r, attempt));
      before = std::sqrt(dot(column, column, n));
      left = remove_projections(columns, r, column, n);
      if (!std::isfinite(left)) break;  // an earlier column has a NaN
    }
    for (std::int64_t i = 0; i < n; ++i) column[i] = static_cast<float>(column[i] / left);
  }
}

}  // namespace paceline::compress
