// The loops of lstm.cpp, each compiled for every width of vectors (base/simd.h).
//
// A layer's weights lie in blocks of 16 units: for a block, row by row (one row for each of the layer's inputs, for each unit of the
// carried state, and for the bias), the weights that lead from there to the 4 gates of the 16 units. So a product with the weights reads
// memory once, from front to back, keeps the 64 sums of a block in registers and never adds across lanes; and a block's sums are all that
// its units need. Gates and their gradients lie in the same order: [block][input, forget, candidate, output][16 units].
//
// Every sum has a fixed order, whatever the width.
#pragma once

#include <algorithm>
#include <cstdint>

#include "paceline/base/simd.h"
#include "paceline/optim/rules/element.h"
#include "paceline/ps/predictors/sigmoid.h"

namespace paceline::ps {

inline constexpr int kUnits = 16, kBlock = 4 * kUnits;

[[gnu::always_inline]] inline float root(float x) { return optim::square_root(x); }
[[gnu::always_inline]] inline double root(double x) { return std::sqrt(x); }

/// The weights of one layer, and vectors that go with them.
template <class T>
struct Product {
  std::int64_t blocks, rows;
  const T* weights;  // [blocks][rows][kBlock]
  const T* factor;
  T* result;
};

/// result[block][gate] = Σ over rows of factor[row] · weight.
template <class T>
struct Multiply {
  using Arguments = Product<T>;

  [[gnu::always_inline]] static void run(const Product<T>& product) {
    const T *weights = product.weights, *const factor = product.factor;
    const std::int64_t rows = product.rows;
    for (std::int64_t block = 0; block < product.blocks; ++block) {
      T sums[kBlock] = {};
      for (std::int64_t row = 0; row < rows; ++row, weights += kBlock) {
        const T scale = factor[row];
#pragma GCC ivdep
        for (int i = 0; i < kBlock; ++i) sums[i] = multiply_add(weights[i], scale, sums[i]);
      }
      std::copy_n(sums, kBlock, product.result + block * kBlock);
    }
  }
};

/// Adds lane by lane, then folds the halves.
template <class T>
[[gnu::always_inline]] inline T sum_of_lanes(T (&lanes)[kUnits]) {
#pragma GCC unroll 4
  for (int width = kUnits / 2; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

/// result[row] = Σ over blocks and gates of factor[block][gate] · weight, for the first `results` rows.
template <class T>
struct MultiplyTransposed {
  struct Arguments {
    Product<T> product;
    std::int64_t results;
  };

  [[gnu::always_inline]] static void run(const Arguments& arguments) {
    const auto [blocks, rows, all, factor, result] = arguments.product;
    for (std::int64_t row = 0; row < arguments.results; ++row) {
      T lanes[kUnits] = {};
      for (std::int64_t block = 0; block < blocks; ++block) {
        const T *const weights = all + (block * rows + row) * kBlock, *const gates = factor + block * kBlock;
#pragma GCC ivdep
        for (int lane = 0; lane < kUnits; ++lane) {
          T sum = lanes[lane];
#pragma GCC unroll 4
          for (int gate = 0; gate < kBlock; gate += kUnits) sum = multiply_add(weights[gate + lane], gates[gate + lane], sum);
          lanes[lane] = sum;
        }
      }
      result[row] = sum_of_lanes(lanes);
    }
  }
};

/// The units of one layer in one time step. Of the pointers, gates have [blocks][kBlock] elements and all others [blocks][kUnits].
template <class T>
struct Cells {
  std::int64_t blocks;
  T* gates;              // forward: sums in, activations out
  const T* cell_before;  // c
  T* cell;               // c' = f c + i g
  T* cell_tanh;          // tanh c'
  T* hidden;             // h' = o tanh c'
};

template <class T>
struct CellForward {
  using Arguments = Cells<T>;

  [[gnu::always_inline]] static void run(const Cells<T>& cells) {
    for (std::int64_t block = 0; block < cells.blocks; ++block) {
      T* const gates = cells.gates + block * kBlock;
      const T* const before = cells.cell_before + block * kUnits;
      T *const cell = cells.cell + block * kUnits, *const cell_tanh = cells.cell_tanh + block * kUnits;
      T* const hidden = cells.hidden + block * kUnits;
#pragma GCC ivdep
      for (int unit = 0; unit < kUnits; ++unit) {
        const T input = sigmoid(gates[unit]), forget = sigmoid(gates[kUnits + unit]);
        const T candidate = tangent_hyperbolic(gates[2 * kUnits + unit]), output = sigmoid(gates[3 * kUnits + unit]);
        const T now = multiply_add(forget, before[unit], input * candidate), now_tanh = tangent_hyperbolic(now);
        gates[unit] = input, gates[kUnits + unit] = forget;
        gates[2 * kUnits + unit] = candidate, gates[3 * kUnits + unit] = output;
        cell[unit] = now;
        cell_tanh[unit] = now_tanh;
        hidden[unit] = output * now_tanh;
      }
    }
  }
};

/// From ∂/∂h' to the gradient of the gates' sums. Truncation 1: nothing comes from later steps into c', nothing goes to earlier ones.
template <class T>
struct CellBackward {
  struct Arguments {
    std::int64_t blocks;
    const T *gates, *cell_before, *cell_tanh;
    const T* hidden_gradient;
    T* sums_gradient;  // [blocks][kBlock]
  };

  [[gnu::always_inline]] static void run(const Arguments& a) {
    for (std::int64_t block = 0; block < a.blocks; ++block) {
      const T* const gates = a.gates + block * kBlock;
      const T *const before = a.cell_before + block * kUnits, *const now_tanh = a.cell_tanh + block * kUnits;
      const T* const hidden = a.hidden_gradient + block * kUnits;
      T* const sums = a.sums_gradient + block * kBlock;
#pragma GCC ivdep
      for (int unit = 0; unit < kUnits; ++unit) {
        const T input = gates[unit], forget = gates[kUnits + unit], candidate = gates[2 * kUnits + unit], output = gates[3 * kUnits + unit];
        const T cell = hidden[unit] * output * (1 - now_tanh[unit] * now_tanh[unit]);
        sums[unit] = cell * candidate * input * (1 - input);
        sums[kUnits + unit] = cell * before[unit] * forget * (1 - forget);
        sums[2 * kUnits + unit] = cell * input * (1 - candidate * candidate);
        sums[3 * kUnits + unit] = hidden[unit] * now_tanh[unit] * output * (1 - output);
      }
    }
  }
};

/// The derivative of CellForward along one direction; names with _dot are derivatives.
template <class T>
struct CellTangent {
  struct Arguments {
    std::int64_t blocks;
    const T *gates, *cell_before, *cell_tanh;
    const T* sums_dot;  // [blocks][kBlock]
    T* cell_dot;        // of c in, of c' out
    T* hidden_dot;      // of h' out
  };

  [[gnu::always_inline]] static void run(const Arguments& a) {
    for (std::int64_t block = 0; block < a.blocks; ++block) {
      const T *const gates = a.gates + block * kBlock, *const sums_dot = a.sums_dot + block * kBlock;
      const T *const before = a.cell_before + block * kUnits, *const now_tanh = a.cell_tanh + block * kUnits;
      T *const cell_dot = a.cell_dot + block * kUnits, *const hidden_dot = a.hidden_dot + block * kUnits;
#pragma GCC ivdep
      for (int unit = 0; unit < kUnits; ++unit) {
        const T input = gates[unit], forget = gates[kUnits + unit], candidate = gates[2 * kUnits + unit], output = gates[3 * kUnits + unit];
        const T input_dot = sums_dot[unit] * input * (1 - input), forget_dot = sums_dot[kUnits + unit] * forget * (1 - forget);
        const T candidate_dot = sums_dot[2 * kUnits + unit] * (1 - candidate * candidate);
        const T output_dot = sums_dot[3 * kUnits + unit] * output * (1 - output);
        const T now_dot = forget_dot * before[unit] + forget * cell_dot[unit] + input_dot * candidate + input * candidate_dot;
        cell_dot[unit] = now_dot;
        hidden_dot[unit] = output_dot * now_tanh[unit] + output * (1 - now_tanh[unit] * now_tanh[unit]) * now_dot;
      }
    }
  }
};

/// Adam over one layer (rules/adam.h has the formula). The gradient of a weight is the product of its row's factor and its column's
/// gradient, so it is never written to memory. The rate and the corrections of the biases are folded into the divisor:
///
///   m ← β₁ m + (1−β₁) g;   v ← β₂ v + (1−β₂) g²;   w ← w − m / (√v · slope + floor)
template <class T>
struct AdamStep {
  struct Arguments {
    std::int64_t blocks, rows;
    T *weights, *first, *second;  // [blocks][rows][kBlock]
    const T* factor;              // [rows]
    const T* fresh_first;         // [blocks][kBlock]: (1−β₁) · gradient of the column
    const T* fresh_second;        // [blocks][kBlock]: (1−β₂) · its square
    T beta1, beta2, slope, floor;
  };

  [[gnu::always_inline]] static void run(const Arguments& arguments) {
    const Arguments a = arguments;  // a copy: the compiler must see that no store of the loop changes it
    T *weights = a.weights, *first = a.first, *second = a.second;
    for (std::int64_t block = 0; block < a.blocks; ++block) {
      const T *const fresh_first = a.fresh_first + block * kBlock, *const fresh_second = a.fresh_second + block * kBlock;
      for (std::int64_t row = 0; row < a.rows; ++row, weights += kBlock, first += kBlock, second += kBlock) {
        const T factor = a.factor[row], squared = factor * factor;
#pragma GCC ivdep
        for (int i = 0; i < kBlock; ++i) {
          const T m = multiply_add(factor, fresh_first[i], a.beta1 * first[i]);
          const T v = multiply_add(squared, fresh_second[i], a.beta2 * second[i]);
          first[i] = m;
          second[i] = v;
          weights[i] -= m / multiply_add(root(v), a.slope, a.floor);
        }
      }
    }
  }
};

}  // namespace paceline::ps
