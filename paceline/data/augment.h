// Augmentation and normalisation of images on the CPU: one pass from bytes to floats.
#pragma once

#include <cstdint>
#include <vector>

#include "paceline/base/random.h"
#include "paceline/data/augment_plan.h"
#include "paceline/data/dataset.h"

namespace paceline::data {

/// The normalisation of a channel: (byte − centre) · scale, which is (byte/255 − mean) / deviation, written so that no compiler can fuse
/// it (augment_plan.h).
struct Normalisation {
  explicit Normalisation(const Info& info);
  std::vector<float> centre, scale;  // per channel
};

/// Draws how an image is augmented; null: it is not. How many numbers a sample draws depends only on the settings, never on the outcome.
AugmentPlan draw_plan(const DataConfig& config, std::int64_t sample, std::int64_t height, std::int64_t width, RandomStream* random);

/// Applies a plan: from image (C×H×W bytes) to out (C×H×W floats).
void apply_plan(const AugmentPlan& plan, const std::uint8_t* image, std::int64_t height, std::int64_t width,
                const Normalisation& normalisation, float* out);

/// Blanks the plan's cutout in out (channels × height × width).
void blank_cutout(const AugmentPlan& plan, std::int64_t channels, std::int64_t height, std::int64_t width, float* out);

}  // namespace paceline::data
