// The masks of dropout: where a value is kept and where it is dropped. Every layer of every micro-batch reseeds them, so a mask depends
// only on the run's seed, the worker, the step, the micro-batch and the layer; not on which rank computes the layer, what was computed
// before, or how often. Ranks that share a layer draw their own part of its mask.
//
// On a GPU, an element's random number is a hash of the seed, the step and its index. The step is in device memory, so that a recorded pass
// drops different values in every replay; and ranks that are threads do not contend for LibTorch's generator of the device.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace paceline::nn {

/// The part [first, first + count) of a whole tensor, along `dim`, that a rank has. all = 0: the tensor is whole.
struct MaskPart {
  std::int64_t dim = 0, all = 0, first = 0, count = 0;
};

class Masks {
 public:
  virtual ~Masks() = default;
  /// Returns the number by which seeds must differ from those of other steps: the step, or 0 if the masks read it themselves.
  virtual std::uint64_t begin_step(std::int64_t step) = 0;
  virtual void seed(std::uint64_t seed) = 0;
  /// 1/keep with probability `keep`, otherwise 0, shaped like `values`: the part of a whole mask, or all of it.
  virtual at::Tensor draw(const at::Tensor& values, const MaskPart& part, double keep) = 0;
};

/// As Masks::draw, but with LibTorch's generators: this one, or that of the device.
at::Tensor draw_mask(const at::Tensor& values, const MaskPart& part, double keep, const at::Generator* generator = nullptr);

std::unique_ptr<Masks> make_masks(const c10::Device& device);

}  // namespace paceline::nn
