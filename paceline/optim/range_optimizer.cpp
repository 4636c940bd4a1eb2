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
  Buffers all = buffers(gradients, stream);
  if (clips_) {
    if (cuda_) cuda_->squared_norm(gradients, segments_, memory_.squared_norm, stream);
    else *memory_.squared_norm = squared_norm(gradients, length_);
    all.squared_norm = memory_.squared_norm;
  }
  optimizer_->update(all, segments_, hyper, /*zero_gradients=*/false);
}

void RangeOptimizer::update(float* gradients, std::int64_t begin, std::int64_t end, const Hyper& hyper, void* stream) {
  const std::vector<Segment> range = segments_within(segments_, begin, end);
  if (!elementwise())
    for (const Segment& part : range) {
      const auto whole = std::ranges::lower_bound(segments_, part.offset, {}, &Segment::offset);
      ensure(whole != segments_.end() && whole->offset == part.offset && whole->count == part.count,
             "a tensor whose norm decides is updated whole");
    }
  optimizer_->update(buffers(gradients, stream), range, hyper, /*zero_gradients=*/false);
}

}  // namespace paceline::optim
