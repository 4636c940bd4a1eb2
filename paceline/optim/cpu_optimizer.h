// An optimizer on the CPU: a rule of rules/ in one vectorised pass over memory.
//
// Rules with a trust factor (LARS, LAMB) first make a pass for the norms, whose sums go over the blocks of a tensor in order.
#pragma once

#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/simd.h"
#include "paceline/optim/norm.h"
#include "paceline/optim/optimizer.h"
#include "paceline/optim/parallel.h"
#include "paceline/optim/rules/element.h"

namespace paceline::optim {

/// Consecutive elements of one tensor. States that the rule does not have are null.
struct Elements {
  const Step& step;
  TensorFactors tensor;
  float* weights;
  float* gradients;
  float* first;
  float* second;
  std::int64_t count;
  float* directions = nullptr;  // the first pass of LAMB writes them here
};

/// The whole update of elements, for the rules that have apply().
template <class Rule, bool zero_gradients>
struct Apply {
  using Arguments = Elements;

  [[gnu::always_inline]] static void run(const Elements& e) {
    const Step step = e.step;  // a copy: the compiler must see that no store of the loop changes it
    for_each_element(e.count, [=](std::int64_t i) PACELINE_INLINE {
      float first = 0, second = 0;
      if constexpr (Rule::kStates > 0) first = e.first[i];
      if constexpr (Rule::kStates > 1) second = e.second[i];
      Rule::apply(step, e.tensor, product(step.scale, e.gradients[i]), e.weights[i], first, second);
      if constexpr (Rule::kStates > 0) e.first[i] = first;
      if constexpr (Rule::kStates > 1) e.second[i] = second;
      if constexpr (zero_gradients) e.gradients[i] = 0;
    });
  }
};

/// First pass of LAMB: the moments, and the directions of one block for its norm.
template <class Rule, bool zero_gradients>
struct Accumulate {
  using Arguments = Elements;

  [[gnu::always_inline]] static void run(const Elements& e) {
    const Step step = e.step;
    for_each_element(e.count, [=](std::int64_t i) PACELINE_INLINE {
      Rule::accumulate(step, product(step.scale, e.gradients[i]), e.first[i], e.second[i]);
      e.directions[i] = Rule::direction(step, e.tensor, e.weights[i], e.first[i], e.second[i]);
      if constexpr (zero_gradients) e.gradients[i] = 0;
    });
  }
};

/// Second pass of LAMB: the parameters.
template <class Rule>
struct Move {
  using Arguments = Elements;

  [[gnu::always_inline]] static void run(const Elements& e) {
    const Step step = e.step;
    for_each_element(e.count, [=](std::int64_t i) PACELINE_INLINE { Rule::move(step, e.tensor, e.weights[i], e.first[i], e.second[i]); });
  }
};

template <class Rule>
class CpuOptimizer final : public Optimizer {
 public:
  explicit CpuOptimizer(const OptimConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {Rule::kStateNames.begin(), Rule::kStateNames.begin() + Rule::kStates}; }
  bool elementwise() const override { return Rule::kNorms == Norms::none; }

  void update(const Buffers& buffers, std::span<const Segment> segments, const Hyper& hyper, bool zero_gradients) override {
    const Step step = step_of(buffers, hyper);
    if (zero_gradients) pass<true>(buffers, segments, step);
    else pass<false>(buffers, segments, step);
  }

  void measure(const Buffers& buffers, std::span<const Segment> pieces, const Hyper& hyper, Squares* squares) override {
    const Step step = step_of(buffers, hyper);
    const std::vector<Squares> measured = measure<false>(pieces, Work(buffers, pieces, step));
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      Squares& sum = squares[pieces[i].tensor];
      sum.parameters += measured[i].parameters, sum.others += measured[i].others;
    }
  }

  void move(const Buffers& buffers, std::span<const Segment> pieces, const Hyper& hyper, const Squares* squares) override {
    const Step step = step_of(buffers, hyper);
    Work work(buffers, pieces, step);
    std::vector<Squares> whole;
    for (const Segment& piece : pieces) whole.push_back(squares[piece.tensor]);
    finish<false>(pieces, work, whole);
  }

 private:
  Step step_of(const Buffers& buffers, const Hyper& hyper) const {
    ensure(buffers.state.size() == Rule::kStates, "an optimizer gets the state that its state_names() asks for");
    Step step = make_step(config_, hyper);
    if (buffers.squared_norm) step.scale = clipped_scale(step.scale, *buffers.squared_norm, config_.clip_norm);
    return step;
  }

  /// One step on some tensors.
  struct Work {
    Work(const Buffers& given, std::span<const Segment> given_segments, const Step& given_step)
        : buffers(given), segments(given_segments), step(given_step) {
      for (const Segment& segment : segments) tensors.push_back({.decay = segment.decay ? step.decay : 0, .trust = 1});
    }
    Elements operator()(std::size_t i, std::int64_t begin, std::int64_t end) const {
      const std::int64_t at = segments[i].offset + begin;
      const auto state = [&](int which) { return which < Rule::kStates ? buffers.state[which] + at : nullptr; };
      return Elements{step, tensors[i], buffers.parameters + at, buffers.gradients + at, state(0), state(1), end - begin};
    }

    const Buffers& buffers;
    std::span<const Segment> segments;
    const Step& step;
    std::vector<TensorFactors> tensors;
  };

  template <bool zero_gradients>
  static void pass(const Buffers& buffers, std::span<const Segment> segments, const Step& step) {
    Work work(buffers, segments, step);
    if constexpr (Rule::kNorms == Norms::none)
      for_each_part(segments, [&](auto... part) { Simd<Apply<Rule, zero_gradients>>::run(work(part...)); });
    else finish<zero_gradients>(segments, work, measure<zero_gradients>(segments, work));
  }

  /// The first pass of rules with a trust factor.
  template <bool zero_gradients>
  static std::vector<Squares> measure(std::span<const Segment> segments, const Work& work) {
    if constexpr (Rule::kNorms == Norms::gradient) {
      return sum_squares(segments, work, [](const Elements& block) { return block_squared_norm(block.gradients, block.count); });
    } else if constexpr (Rule::kNorms == Norms::direction) {
      return sum_squares(segments, work, [](Elements block) {
        float directions[kBlock];
        block.directions = directions;
        Simd<Accumulate<Rule, zero_gradients>>::run(block);
        return block_squared_norm(directions, block.count);
      });
    } else {
      throw InternalError("an optimizer that updates every element by itself measures nothing");
    }
  }

  /// The second pass: sets the tensors' trust factors and updates the parameters.
  template <bool zero_gradients>
  static void finish(std::span<const Segment> segments, Work& work, std::span<const Squares> squares) {
    if constexpr (Rule::kNorms != Norms::none) {
      for (std::size_t i = 0; i < segments.size(); ++i)
        if (segments[i].decay) work.tensors[i].trust = Rule::trust(work.step, squares[i].parameters, squares[i].others);
    }
    if constexpr (Rule::kNorms == Norms::gradient)
      for_each_part(segments, [&](auto... part) { Simd<Apply<Rule, zero_gradients>>::run(work(part...)); });
    else if constexpr (Rule::kNorms == Norms::direction)
      for_each_part(segments, [&](auto... part) { Simd<Move<Rule>>::run(work(part...)); });
  }

  /// For each tensor: the sum of squares of its parameters, and the sum of other_norm(block).
  template <class OtherNorm>
  static std::vector<Squares> sum_squares(std::span<const Segment> segments, const Work& work, const OtherNorm& other_norm) {
    std::vector<std::int64_t> first_block = {0};
    for (const Segment& segment : segments) first_block.push_back(first_block.back() + blocks_of(segment.count));
    std::vector<double> weights(first_block.back()), others(first_block.back());

    for_each_part(segments, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
      for (std::int64_t at = begin; at < end; at += kBlock) {
        const Elements block = work(i, at, std::min(at + kBlock, end));
        const std::int64_t index = first_block[i] + at / kBlock;
        weights[index] = block_squared_norm(block.weights, block.count);
        others[index] = other_norm(block);
      }
    });

    std::vector<Squares> squares(segments.size());
    for (std::size_t i = 0; i < segments.size(); ++i) {
      const auto sum = [&](const std::vector<double>& blocks) {
        return std::accumulate(blocks.begin() + first_block[i], blocks.begin() + first_block[i + 1], 0.0);
      };
      squares[i] = {sum(weights), sum(others)};
    }
    return squares;
  }

  OptimConfig config_;
};

}  // namespace paceline::optim
