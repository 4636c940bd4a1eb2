#include "paceline/optim/range_optimizer.h"

#include <algorithm>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/optim/parallel.h"

namespace paceline::optim {

std::vector<Segment> segments_within(std::span<const Segment> segments, std::int64_t begin, std::int64_t end) {
  std::vector<Segment> result;
  auto part = std::ranges::upper_bound(segments, begin, {}, [](const Segment& segment) { return segment.offset + segment.count; });
  for (; part != segments.end() && part->offset < end; ++part) {
    const std::int64_t from = std::max(part->offset, begin), to = std::min(part->offset + part->count, end);
    if (from < to) result.push_back({from, to - from, part->decay, part->tensor});
  }
  return result;
}

RangeOptimizer::RangeOptimizer(const OptimConfig& config, std::vector<Segment> segments, std::int64_t length, bool cuda)
    : config_(config), segments_(std::move(segments)), length_(length), clips_(config.clip_norm > 0) {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].decay = segments_[i].decay || config.decay_norms;
    segments_[i].tensor = static_cast<std::int32_t>(i);
  }
  if (cuda) {
    auto made = make_cuda_optimizer(config, segments_);
    cuda_ = made.get();
    optimizer_ = std::move(made);
  } else {
    optimizer_ = make_optimizer(config);
  }
}

void RangeOptimizer::cut(std::span<const Stretch> stretches) {
  if (!cuda_) return;
  std::vector<Segment> pieces;
  for (const Stretch& stretch : stretches)
    for (const Segment& piece : segments_within(segments_, stretch.begin, stretch.end)) pieces.push_back(piece);
  auto made = make_cuda_optimizer(config_, pieces);
  cuda_ = made.get();
  optimizer_ = std::move(made);
}

void RangeOptimizer::set_hyper(const Hyper& hyper, void* stream) {
  if (cuda_) cuda_->set_hyper(hyper, stream);
}

void RangeOptimizer::update(float* gradients, const Hyper& hyper, void* stream) {
  measure_norm(gradients, stream);
  update(gradients, {0, length_, 0}, hyper, stream, clips_);
}

void RangeOptimizer::measure_norm(const float* gradients, void* stream) {
  if (!clips_) return;
  if (cuda_) cuda_->squared_norm(gradients, segments_, memory_.squared_norm, stream);
  else *memory_.squared_norm = squared_norm(gradients, length_);
}

void RangeOptimizer::update(float* gradients, const Stretch& stretch, const Hyper& hyper, void* stream, bool clipped) {
  const Placed placed = place(gradients, stretch, stream, clipped);
  if (!elementwise())
    for (const Segment& piece : placed.pieces)
      ensure(piece.count == segments_[static_cast<std::size_t>(piece.tensor)].count, "a tensor whose norm decides is updated whole");
  optimizer_->update(placed.buffers, placed.pieces, hyper, /*zero_gradients=*/false);
}

void RangeOptimizer::measure(float* gradients, const Stretch& stretch, const Hyper& hyper, void* stream, bool clipped, Squares* squares) {
  const Placed placed = place(gradients, stretch, stream, clipped);
  optimizer_->measure(placed.buffers, placed.pieces, hyper, squares);
}

void RangeOptimizer::move(float* gradients, const Stretch& stretch, const Hyper& hyper, void* stream, bool clipped,
                          const Squares* squares) {
  const Placed placed = place(gradients, stretch, stream, clipped);
  optimizer_->move(placed.buffers, placed.pieces, hyper, squares);
}

RangeOptimizer::Placed RangeOptimizer::place(float* gradients, const Stretch& stretch, void* stream, bool clipped) const {
  Placed placed{.buffers = {.parameters = memory_.parameters, .gradients = gradients, .state = memory_.state, .stream = stream},
                .pieces = segments_within(segments_, stretch.begin, stretch.end)};
  Buffers& moved = placed.buffers;
  if (clipped) moved.squared_norm = memory_.squared_norm;
  if (stretch.place != stretch.begin && cuda_) {  // its table has the offsets
    const std::int64_t shift = stretch.place - stretch.begin;
    if (memory_.placed_parameters) moved.parameters += shift;
    if (memory_.placed_gradients) moved.gradients += shift;
    for (float*& state : moved.state) state += shift;
  } else if (stretch.place != stretch.begin) {  // offsets count from the stretch's begin, and so do the pointers
    for (Segment& part : placed.pieces) part.offset -= stretch.begin;
    moved.parameters += memory_.placed_parameters ? stretch.place : stretch.begin;
    moved.gradients += memory_.placed_gradients ? stretch.place : stretch.begin;
    for (float*& state : moved.state) state += stretch.place;
  }
  return placed;
}

void RangeOptimizer::update_in_blocks(const Hyper& hyper, const Prepare& prepare, const Done& done) {
  for_each_part(segments_, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
    alignas(64) float gradients[kBlock];
    Buffers buffers{.gradients = gradients};
    for (std::int64_t at = begin; at < end; at += kBlock) {
      const Block block{segments_[i].offset + at, std::min(end - at, kBlock), segments_[i].decay};
      prepare(block, gradients);
      buffers.parameters = memory_.parameters + block.offset;
      buffers.state.clear();
      for (float* state : memory_.state) buffers.state.push_back(state + block.offset);
      const Segment here{0, block.count, block.decay};
      optimizer_->update(buffers, {&here, 1}, hyper, /*zero_gradients=*/false);
      done(block);
    }
  });
}

}  // namespace paceline::optim
