// A small stacked LSTM (Hochreiter, Schmidhuber 1997) with a linear head, that sees one sample at a time and learns from each.
//
//   i, f, o = σ(W [x, h, 1]),  g = tanh(W [x, h, 1]);   c' = f c + i g,  h' = o tanh c';   y = w · [h' of the last layer, 1]
//
// One training step is truncated after one time step: the carried state is a constant. Its gradient is then an outer product in every
// layer, which Adam takes as it is (lstm_kernels.h). Predictors use float; double is for tests that compare derivatives with finite
// differences.
//
// Invariant: the bits depend on the inputs alone, not on the width of the processor's vectors; one thread does everything.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "paceline/base/aligned.h"
#include "paceline/base/random.h"

namespace paceline::ps {

struct LstmShape {
  std::int64_t inputs = 1, layers = 2, hidden = 64;
};

template <class T>
class Lstm {
 public:
  /// The state carried from step to step: [layers][hidden, padded with zeros to whole blocks].
  struct State {
    AlignedVector<T> hidden, cell;
  };

  /// One time step with everything that training needs of it.
  struct Step {
    AlignedVector<T> factors;      // for every layer [x, h, 1]: the factors of its weights
    AlignedVector<T> gates;        // [layers][blocks][kBlock]
    AlignedVector<T> cell_before;  // [layers][hidden]
    AlignedVector<T> cell_tanh;    // [layers][hidden]
    AlignedVector<T> features;     // [h' of the last layer, 1], what the head's weights are multiplied by
    State after;
    T output = 0;
  };

  /// Weights are uniform in ±1/√hidden.
  Lstm(const LstmShape& shape, double rate, RandomStream random);

  State state() const;  // zeros
  Step step() const;    // room for one

  /// One step from `before`, which may be step.after; returns step.output.
  T forward(std::span<const T> inputs, const State& before, Step& step) const;

  /// The derivative of step.output and of step.after, given those of the inputs and of the state before, which may be dots.after.
  T tangent(const Step& step, std::span<const T> inputs_dot, const State& before_dot, Step& dots) const;

  /// One step of Adam on (step.output − label)². The step must have been made with the present weights.
  void train(const Step& step, T label);

  /// Everything that training changes, in a fixed order.
  std::vector<std::span<T>> parts();

  std::span<T> weights() { return weights_; }
  std::span<const T> first_moments() const { return first_; }

 private:
  struct Layer {
    std::int64_t inputs, rows;      // rows = inputs + padded + 1
    std::int64_t weights, factors;  // where they begin in weights_ and in Step::factors
  };

  void adam(std::int64_t blocks, std::int64_t rows, std::int64_t offset, const T* factor, std::span<const T> gradient);
  T head(const AlignedVector<T>& features) const;

  std::int64_t padded_, blocks_;  // hidden units, padded to whole blocks
  double rate_;
  std::vector<Layer> layers_;
  std::int64_t head_, features_;                 // where the head's weights begin; their padded number
  AlignedVector<T> weights_, first_, second_;    // layers, then the head
  T left1_ = 1, left2_ = 1;                      // β₁ᵗ, β₂ᵗ
  AlignedVector<T> hidden_gradient_, gradient_;  // scratch of train()
  AlignedVector<T> fresh_first_, fresh_second_;  // scratch of adam()
};

extern template class Lstm<float>;
extern template class Lstm<double>;

}  // namespace paceline::ps
