// How an image is augmented, and the value of each output pixel: the definition that the CPU, the GPU kernel and the tests share.
//
// Invariant: the arithmetic is a subtraction and then a multiplication, which no compiler may fuse, so every device gets the same bits.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PACELINE_HOST_DEVICE __host__ __device__
#else
#define PACELINE_HOST_DEVICE
#endif

namespace paceline::data {

/// How one image is augmented; drawn on the CPU for both devices. Trivially copyable: the GPU kernel reads an array of these.
struct AugmentPlan {
  std::int32_t sample = 0;                // index in the dataset
  std::int16_t shift_x = 0, shift_y = 0;  // source pixel = (mirrored) output pixel + shift; outside the image it is 0 before normalisation
  std::int16_t cut_x = 0, cut_y = 0;      // upper left corner of the cutout in the output; may be outside
  std::int16_t cut = 0;                   // its side; 0: none
  std::int16_t flip = 0;
};

/// A byte, normalised: `centre` and `scale` are in units of bytes (see Normalisation in augment.h).
PACELINE_HOST_DEVICE inline float normalised(std::uint8_t byte, float centre, float scale) {
  return (static_cast<float>(byte) - centre) * scale;
}

/// Output pixel (x, y) of one channel: cutout blanks to 0 after normalisation, the padding is 0 before it.
PACELINE_HOST_DEVICE inline float augmented(const std::uint8_t* plane, const AugmentPlan& plan, int x, int y, int height, int width,
                                            float centre, float scale) {
  if (x >= plan.cut_x && x < plan.cut_x + plan.cut && y >= plan.cut_y && y < plan.cut_y + plan.cut) return 0.0f;
  const int from_x = (plan.flip ? width - 1 - x : x) + plan.shift_x;
  const int from_y = y + plan.shift_y;
  const bool inside = from_x >= 0 && from_x < width && from_y >= 0 && from_y < height;
  return normalised(inside ? plane[from_y * width + from_x] : std::uint8_t{0}, centre, scale);
}

}  // namespace paceline::data
