#include "paceline/nn/masks.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "paceline/base/error.h"
#if PACELINE_WITH_CUDA
#include "paceline/nn/masks_cuda.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/recorded.h"
#endif

namespace paceline::nn {
namespace {

/// Has its own generator.
class HostMasks final : public Masks {
 public:
  std::uint64_t begin_step(std::int64_t step) override { return static_cast<std::uint64_t>(step); }
  void seed(std::uint64_t seed) override { generator_.set_current_seed(seed); }

  at::Tensor draw(const at::Tensor& values, const MaskPart& part, double keep) override {
    return draw_mask(values, part, keep, &generator_);
  }

 private:
  at::Generator generator_ = at::make_generator<at::CPUGeneratorImpl>();
};

#if PACELINE_WITH_CUDA

class DeviceMasks final : public Masks {
 public:
  explicit DeviceMasks(const c10::Device& device) : step_(at::zeros({1}, at::TensorOptions().dtype(at::kLong).device(device))) {
    tensor::synchronize(device);  // steps are made on another stream, whose first number the zeros would overwrite
  }

  std::uint64_t begin_step(std::int64_t step) override {
    step_.fill_(step);
    return 0;
  }
  void seed(std::uint64_t seed) override { seed_ = seed, place_ = 0; }

  at::Tensor draw(const at::Tensor& values, const MaskPart& part, double keep) override {
    const MaskShape shape = shape_of(values, part);
    at::Tensor mask = at::empty(values.sizes(), values.options(), at::MemoryFormat::Contiguous);
    launch_mask(type_of(values), mask.data_ptr(), shape, seed_, step_.data_ptr<std::int64_t>(), place_, keep,
                tensor::current_stream(values.device()));
    place_ += static_cast<std::uint64_t>(shape.outer * shape.all * shape.inner);
    return mask.contiguous(values.suggest_memory_format());
  }

 private:
  static MaskShape shape_of(const at::Tensor& values, const MaskPart& part) {
    if (part.all == 0) return {.all = values.numel(), .count = values.numel()};
    MaskShape shape{.all = part.all, .first = part.first, .count = part.count};
    for (std::int64_t dim = 0; dim < values.dim(); ++dim) {
      if (dim < part.dim) shape.outer *= values.size(dim);
      if (dim > part.dim) shape.inner *= values.size(dim);
    }
    return shape;
  }
  static MaskType type_of(const at::Tensor& values) {
    switch (values.scalar_type()) {
      case at::kFloat: return MaskType::fp32;
      case at::kDouble: return MaskType::fp64;
      case at::kHalf: return MaskType::fp16;
      case at::kBFloat16: return MaskType::bf16;
      default: throw InternalError("dropout is for floating-point values");
    }
  }

  at::Tensor step_;
  std::uint64_t seed_ = 0, place_ = 0;  // of the next mask's first element among those of this seed
};

#endif

}  // namespace

at::Tensor draw_mask(const at::Tensor& values, const MaskPart& part, double keep, const at::Generator* generator) {
  const auto drawn = [&](at::Tensor mask) {
    if (generator) mask.bernoulli_(keep, *generator);
    else mask.bernoulli_(keep);
    return mask.div_(keep);
  };
  if (part.all == 0) return drawn(at::empty_like(values));
  auto shape = values.sizes().vec();
  shape[static_cast<std::size_t>(part.dim)] = part.all;
  const auto format = values.suggest_memory_format();
  return drawn(at::empty(shape, values.options(), format)).narrow(part.dim, part.first, part.count).contiguous(format);
}

std::unique_ptr<Masks> make_masks(const c10::Device& device) {
#if PACELINE_WITH_CUDA
  if (device.is_cuda()) return std::make_unique<DeviceMasks>(device);
#endif
  ensure(device.is_cpu(), "this build has masks for the CPU alone");
  return std::make_unique<HostMasks>();
}

}  // namespace paceline::nn
