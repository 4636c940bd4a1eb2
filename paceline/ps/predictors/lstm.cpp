#include "paceline/ps/predictors/lstm.h"

#include <cmath>

#include "paceline/ps/predictors/lstm_kernels.h"

namespace paceline::ps {
namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kFloor = 1e-8;

std::int64_t filled_up(std::int64_t count, std::int64_t unit) { return (count + unit - 1) / unit * unit; }

template <class T>
AlignedVector<T> zeros(std::int64_t count) {
  return AlignedVector<T>(static_cast<std::size_t>(count));
}

}  // namespace

template <class T>
Lstm<T>::Lstm(const LstmShape& shape, double rate, RandomStream random)
    : padded_(filled_up(shape.hidden, kUnits)), blocks_(padded_ / kUnits), rate_(rate) {
  std::int64_t weights = 0, factors = 0;
  for (std::int64_t index = 0; index < shape.layers; ++index) {
    const std::int64_t inputs = index == 0 ? shape.inputs : padded_, rows = inputs + padded_ + 1;
    layers_.push_back({.inputs = inputs, .rows = rows, .weights = weights, .factors = factors});
    weights += blocks_ * rows * kBlock;
    factors += rows;
  }
  head_ = weights;
  features_ = filled_up(padded_ + 1, kBlock);
  weights_ = first_ = second_ = zeros<T>(head_ + features_);
  hidden_gradient_ = zeros<T>(padded_);
  gradient_ = zeros<T>(blocks_ * kBlock);
  fresh_first_ = fresh_second_ = zeros<T>(std::max(blocks_ * kBlock, features_));

  // Padding units keep weights of zero: their state stays zero, and so does every gradient that involves them.
  const T bound = 1 / std::sqrt(static_cast<T>(shape.hidden));
  const auto draw = [&] { return static_cast<T>(random.uniform(-1.0f, 1.0f)) * bound; };
  for (std::int64_t index = 0; index < shape.layers; ++index) {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    const std::int64_t state = layer.inputs, bias = state + padded_;
    for (std::int64_t row = 0; row <= bias; ++row) {
      const bool fills = (index > 0 && row >= shape.hidden && row < state) || (row >= state + shape.hidden && row < bias);
      if (fills) continue;
      for (std::int64_t unit = 0; unit < shape.hidden; ++unit)
        for (int gate = 0; gate < kBlock; gate += kUnits)
          weights_[layer.weights + (unit / kUnits * layer.rows + row) * kBlock + gate + unit % kUnits] = draw();
    }
  }
  for (std::int64_t unit = 0; unit < shape.hidden; ++unit) weights_[head_ + unit] = draw();
  weights_[head_ + padded_] = draw();
}

template <class T>
typename Lstm<T>::State Lstm<T>::state() const {
  const auto count = static_cast<std::int64_t>(layers_.size()) * padded_;
  return {.hidden = zeros<T>(count), .cell = zeros<T>(count)};
}

template <class T>
typename Lstm<T>::Step Lstm<T>::step() const {
  const auto count = static_cast<std::int64_t>(layers_.size()) * padded_;
  return {.factors = zeros<T>(layers_.back().factors + layers_.back().rows),
          .gates = zeros<T>(4 * count),
          .cell_before = zeros<T>(count),
          .cell_tanh = zeros<T>(count),
          .features = zeros<T>(features_),
          .after = state()};
}

template <class T>
T Lstm<T>::forward(std::span<const T> inputs, const State& before, Step& step) const {
  const T* below = inputs.data();
  for (std::size_t index = 0; index < layers_.size(); ++index) {
    const Layer& layer = layers_[index];
    const std::int64_t units = static_cast<std::int64_t>(index) * padded_;
    T* const factors = step.factors.data() + layer.factors;
    std::copy_n(below, layer.inputs, factors);
    std::copy_n(before.hidden.data() + units, padded_, factors + layer.inputs);
    factors[layer.rows - 1] = 1;
    std::copy_n(before.cell.data() + units, padded_, step.cell_before.data() + units);

    T* const gates = step.gates.data() + 4 * units;
    Simd<Multiply<T>>::run({blocks_, layer.rows, weights_.data() + layer.weights, factors, gates});
    Simd<CellForward<T>>::run({.blocks = blocks_,
                               .gates = gates,
                               .cell_before = step.cell_before.data() + units,
                               .cell = step.after.cell.data() + units,
                               .cell_tanh = step.cell_tanh.data() + units,
                               .hidden = step.after.hidden.data() + units});
    below = step.after.hidden.data() + units;
  }
  std::copy_n(below, padded_, step.features.data());
  step.features[padded_] = 1;
  return step.output = head(step.features);
}

template <class T>
T Lstm<T>::tangent(const Step& step, std::span<const T> inputs_dot, const State& before_dot, Step& dots) const {
  const T* below = inputs_dot.data();
  for (std::size_t index = 0; index < layers_.size(); ++index) {
    const Layer& layer = layers_[index];
    const std::int64_t units = static_cast<std::int64_t>(index) * padded_;
    T* const factors = dots.factors.data() + layer.factors;
    std::copy_n(below, layer.inputs, factors);
    std::copy_n(before_dot.hidden.data() + units, padded_, factors + layer.inputs);
    factors[layer.rows - 1] = 0;
    std::copy_n(before_dot.cell.data() + units, padded_, dots.after.cell.data() + units);

    T* const sums = dots.gates.data() + 4 * units;
    Simd<Multiply<T>>::run({blocks_, layer.rows, weights_.data() + layer.weights, factors, sums});
    Simd<CellTangent<T>>::run({.blocks = blocks_,
                               .gates = step.gates.data() + 4 * units,
                               .cell_before = step.cell_before.data() + units,
                               .cell_tanh = step.cell_tanh.data() + units,
                               .sums_dot = sums,
                               .cell_dot = dots.after.cell.data() + units,
                               .hidden_dot = dots.after.hidden.data() + units});
    below = dots.after.hidden.data() + units;
  }
  std::copy_n(below, padded_, dots.features.data());
  return dots.output = head(dots.features);
}

template <class T>
T Lstm<T>::head(const AlignedVector<T>& features) const {
  T result;  // the head is a single row whose columns are the features
  Simd<MultiplyTransposed<T>>::run({{features_ / kBlock, 1, weights_.data() + head_, features.data(), &result}, 1});
  return result;
}

template <class T>
void Lstm<T>::train(const Step& step, T label) {
  left1_ *= static_cast<T>(kBeta1);
  left2_ *= static_cast<T>(kBeta2);
  const T slope = 2 * (step.output - label);
  for (std::int64_t unit = 0; unit < padded_; ++unit) hidden_gradient_[unit] = slope * weights_[head_ + unit];
  adam(features_ / kBlock, 1, head_, &slope, step.features);

  for (std::size_t index = layers_.size(); index-- > 0;) {
    const Layer& layer = layers_[index];
    const std::int64_t units = static_cast<std::int64_t>(index) * padded_;
    Simd<CellBackward<T>>::run({.blocks = blocks_,
                                .gates = step.gates.data() + 4 * units,
                                .cell_before = step.cell_before.data() + units,
                                .cell_tanh = step.cell_tanh.data() + units,
                                .hidden_gradient = hidden_gradient_.data(),
                                .sums_gradient = gradient_.data()});
    if (index > 0)
      Simd<MultiplyTransposed<T>>::run(
          {{blocks_, layer.rows, weights_.data() + layer.weights, gradient_.data(), hidden_gradient_.data()}, padded_});
    adam(blocks_, layer.rows, layer.weights, step.factors.data() + layer.factors, gradient_);
  }
}

template <class T>
void Lstm<T>::adam(std::int64_t blocks, std::int64_t rows, std::int64_t offset, const T* factor, std::span<const T> gradient) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    fresh_first_[i] = static_cast<T>(1 - kBeta1) * gradient[i];
    fresh_second_[i] = static_cast<T>(1 - kBeta2) * gradient[i] * gradient[i];
  }
  const double scale = (1 - left1_) / rate_;
  Simd<AdamStep<T>>::run({.blocks = blocks,
                          .rows = rows,
                          .weights = weights_.data() + offset,
                          .first = first_.data() + offset,
                          .second = second_.data() + offset,
                          .factor = factor,
                          .fresh_first = fresh_first_.data(),
                          .fresh_second = fresh_second_.data(),
                          .beta1 = static_cast<T>(kBeta1),
                          .beta2 = static_cast<T>(kBeta2),
                          .slope = static_cast<T>(scale / std::sqrt(1 - static_cast<double>(left2_))),
                          .floor = static_cast<T>(scale * kFloor)});
}

template <class T>
std::vector<std::span<T>> Lstm<T>::parts() {
  return {weights_, first_, second_, {&left1_, 1}, {&left2_, 1}};
}

template class Lstm<float>;
template class Lstm<double>;

}  // namespace paceline::ps
