// One thread per output pixel, for all its channels: the plan is read once, accesses are coalesced, and a batch is one launch.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "paceline/base/error.h"
#include "paceline/data/augment_cuda.h"

namespace paceline::data {
namespace {

struct Channels {  // passed by value: constants of the kernel need no device memory
  float centre[kMostChannels], scale[kMostChannels];
};

template <class Out>
__device__ Out rounded(float value);
template <>
__device__ float rounded(float value) {
  return value;
}
template <>
__device__ __nv_bfloat16 rounded(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __half rounded(float value) {
  return __float2half_rn(value);
}

template <class Out>
__global__ void augment(const std::uint8_t* pixels, const std::int64_t* labels, const AugmentPlan* plans, int channels, int height,
                        int width, Channels constants, Out* out, bool channels_last, std::int64_t* targets) {
  const int plane = height * width;
  const int pixel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (pixel >= plane) return;
  const std::int64_t image = blockIdx.y;
  const AugmentPlan plan = plans[image];
  const int y = pixel / width, x = pixel - y * width;
  const std::uint8_t* source = pixels + std::int64_t{plan.sample} * channels * plane;
  Out* target = out + image * channels * plane + (channels_last ? std::int64_t{pixel} * channels : pixel);
  for (int c = 0; c < channels; ++c, source += plane, target += channels_last ? 1 : plane)
    *target = rounded<Out>(augmented(source, plan, x, y, height, width, constants.centre[c], constants.scale[c]));
  if (pixel == 0) targets[image] = labels[plan.sample];
}

}  // namespace

void launch_augment(const std::uint8_t* pixels, const std::int64_t* labels, const AugmentPlan* plans, std::int64_t count, int channels,
                    int height, int width, const float* centre, const float* scale, void* out, OutType type, bool channels_last,
                    std::int64_t* targets, void* stream) {
  if (channels > kMostChannels)
    throw ConfigError("data.shape has " + std::to_string(channels) + " channels, the GPU augments up to " + std::to_string(kMostChannels) +
                      "; set data.residency=host");
  Channels constants{};
  std::copy_n(centre, channels, constants.centre);
  std::copy_n(scale, channels, constants.scale);
  const int threads = 256;
  // A grid has at most 2^16 − 1 rows; larger batches are split.
  constexpr std::int64_t kMostImages = 65535;
  for (std::int64_t first = 0; first < count; first += kMostImages) {
    const dim3 grid(static_cast<unsigned>((height * width + threads - 1) / threads),
                    static_cast<unsigned>(std::min(kMostImages, count - first)));
    const std::int64_t offset = first * channels * height * width;
    const auto launch = [&](auto* typed) {
      augment<<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(pixels, labels, plans + first, channels, height, width, constants,
                                                                       typed + offset, channels_last, targets + first);
    };
    switch (type) {
      case OutType::f32: launch(static_cast<float*>(out)); break;
      case OutType::bf16: launch(static_cast<__nv_bfloat16*>(out)); break;
      case OutType::f16: launch(static_cast<__half*>(out)); break;
    }
  }
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess)
    throw Error(std::string("augmentation on the GPU failed: ") + cudaGetErrorString(code));
}

}  // namespace paceline::data
