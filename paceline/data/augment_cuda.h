// The augmentation of augment.cpp for pixels on the GPU. Includes no CUDA header, so callers need no CUDA compiler.
#pragma once

#include <cstdint>

#include "paceline/data/augment_plan.h"

namespace paceline::data {

enum class OutType { f32, bf16, f16 };

constexpr int kMostChannels = 16;

/// Makes a batch of `count` images on `stream` (a cudaStream_t; null: the default stream). Returns at once.
///   pixels   device, count-of-set × C × H × W bytes       labels   device, one per image of the set
///   plans    device (or pinned host), `count` of them     targets  device, `count`
///   centre, scale   host, one per channel: Normalisation in augment.h; read before the call returns
///   out      device, count × C × H × W of `type`; with `channels_last` in the order N × H × W × C
/// f32 output has the bits of apply_plan(); bf16 and f16 are those rounded to nearest. Throws ConfigError beyond kMostChannels, Error if
/// the launch fails.
void launch_augment(const std::uint8_t* pixels, const std::int64_t* labels, const AugmentPlan* plans, std::int64_t count, int channels,
                    int height, int width, const float* centre, const float* scale, void* out, OutType type, bool channels_last,
                    std::int64_t* targets, void* stream);

}  // namespace paceline::data
