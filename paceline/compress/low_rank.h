// Products of a matrix with few columns, at the speed of memory: the matrix is read once, and rank columns stay in registers or caches.
//
// M is rows × columns, in row-major order. Factors are in column-major order: P has rank × `rows` numbers, Q rank × `columns`. The order of
// sums does not depend on the vector width, so all processors compute the same bits.
#pragma once

#include <cstdint>

namespace paceline::compress {

struct Shape {
  std::int64_t rows, columns, rank;
};

/// P = M Q.
void multiply(const Shape& shape, const float* m, const float* q, float* p);

/// Q = Mᵀ P.
void multiply_transposed(const Shape& shape, const float* m, const float* p, float* q);

/// mean = P q_meanᵀ, values = values − P q_ownᵀ.
void reconstruct(const Shape& shape, const float* p, const float* q_mean, const float* q_own, float* mean, float* values);

/// Makes `rank` columns of n ≥ rank numbers orthonormal, in their order. A column that depends on those before is replaced by a random one
/// from `seed`, so that no column is wasted. Columns with a NaN or an infinity stay unchanged.
void orthonormalise(float* columns, std::int64_t n, std::int64_t rank, std::uint64_t seed);

/// The seed of the random column that replaces column r; another one for each attempt, in case it depends on the others too.
constexpr std::uint64_t seed_of_try(std::uint64_t seed, std::int64_t r, std::int64_t attempt) {
  return seed + 1000 * static_cast<std::uint64_t>(attempt) + static_cast<std::uint64_t>(r);
}

/// Uniform in [−1, 1), a pure function of the seed.
void fill_random(float* values, std::int64_t n, std::uint64_t seed);

}  // namespace paceline::compress
