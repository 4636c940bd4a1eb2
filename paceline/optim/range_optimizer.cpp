#include "paceline/optim/range_optimizer.h"

#include <algorithm>
#include <utility>

#include "paceline/base/error.h"

namespace paceline::optim {

std::vector<Segment> segments_within(std::span<const Segment> segments, std::int64_t begin, std::int64_t end) {
  std::vector<Segment> result;
  auto part = std::ranges::upper_bound(segments, begin, {}, [](const Segment& segment) { return segment.offset + segment.count; });
  for (; part != segments.end() && part->offset < end; ++part) {
    const std::int64_t from = std::max(part->offset, begin), to = std::min(part->offset + part->count, end);
    if (from < to) result.push_back({from, to - from, part->decay});
  }
  return result;
}

RangeOptimizer::RangeOptimizer(const OptimConfig& config, std::vector<Segment> segments, std::int64_t length, bool cuda)
    : segments_(std::move(segments)), length_(length), clips_(config.clip_norm > 0) {
  for (Segment& segment : segments_) segment.decay = segment.decay || config.decay_norms;
  if (cuda) {
    auto made = make_cuda_optimizer(config, segments_);
    cuda_ = made.get();
    optimizer_ = std::move(made);
  } else {
    optimizer_ = make_optimizer(config);
  }
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
  std::vector<Segment> range = segments_within(segments_, stretch.begin, stretch.end);
  if (!elementwise())
    for (const Segment& part : range) {
      const auto whole = std::ranges::lower_bound(segments_, part.offset, {}, &Segment::offset);
      ensure(whole != segments_.end() && whole->offset == part.offset && whole->count == part.count,
             "a tensor whose norm decides is updated whole");
    }
  Buffers moved = buffers(gradients, stream);
  if (clipped) moved.squared_norm = memory_.squared_norm;
  if (stretch.place != stretch.begin) {  // offsets count from the stretch's begin, and so do the pointers
    for (Segment& part : range) part.offset -= stretch.begin;
    moved.parameters += stretch.begin, moved.gradients += stretch.begin;
    for (float*& state : moved.state) state += stretch.place;
  }
  optimizer_->update(moved, range, hyper, /*zero_gradients=*/false);
}

}  // namespace paceline::optim
