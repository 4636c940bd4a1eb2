#include "paceline/data/augment.h"

#include <algorithm>

namespace paceline::data {
namespace {

std::int16_t draw_between(RandomStream& random, std::int64_t low, std::int64_t high) {
  return static_cast<std::int16_t>(low + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(high - low + 1))));
}

}  // namespace

Normalisation::Normalisation(const Info& info) {
  for (float mean : info.mean) centre.push_back(mean * 255.0f);
  for (float deviation : info.deviation) scale.push_back(1.0f / (255.0f * deviation));
}

AugmentPlan draw_plan(const DataConfig& config, std::int64_t sample, std::int64_t height, std::int64_t width, RandomStream* random) {
  AugmentPlan plan;
  plan.sample = static_cast<std::int32_t>(sample);
  if (!random) return plan;
  if (config.crop > 0) {
    plan.shift_x = draw_between(*random, -config.crop, config.crop);
    plan.shift_y = draw_between(*random, -config.crop, config.crop);
  }
  if (config.flip) plan.flip = draw_between(*random, 0, 1);
  if (config.cutout > 0) {
    // The centre may be anywhere in the image, so that a corner is blanked as often as any other place (DeVries & Taylor, 2017).
    plan.cut = static_cast<std::int16_t>(config.cutout);
    plan.cut_x = static_cast<std::int16_t>(draw_between(*random, 0, width - 1) - config.cutout / 2);
    plan.cut_y = static_cast<std::int16_t>(draw_between(*random, 0, height - 1) - config.cutout / 2);
  }
  return plan;
}

void apply_plan(const AugmentPlan& plan, const std::uint8_t* image, std::int64_t height, std::int64_t width,
                const Normalisation& normalisation, float* out) {
  // Output columns [begin, end) have a source pixel; a mirrored image shifts the other way.
  const std::int64_t move = plan.flip ? -plan.shift_x : plan.shift_x;
  const std::int64_t begin = std::clamp<std::int64_t>(-move, 0, width);
  const std::int64_t end = std::clamp<std::int64_t>(width - move, begin, width);
  const auto channels = static_cast<std::int64_t>(normalisation.centre.size());
  for (std::int64_t c = 0; c < channels; ++c) {
    const float centre = normalisation.centre[c], scale = normalisation.scale[c];
    const float padding = normalised(0, centre, scale);
    for (std::int64_t y = 0; y < height; ++y, out += width) {
      const std::int64_t from_y = y + plan.shift_y;
      if (from_y < 0 || from_y >= height) {
        std::fill_n(out, width, padding);
        continue;
      }
      const std::uint8_t* row = image + (c * height + from_y) * width;
      std::fill(out, out + begin, padding);
      if (plan.flip) {
        const std::int64_t last = width - 1 + plan.shift_x;
        for (std::int64_t x = begin; x < end; ++x) out[x] = normalised(row[last - x], centre, scale);
      } else {
        for (std::int64_t x = begin; x < end; ++x) out[x] = normalised(row[x + plan.shift_x], centre, scale);
      }
      std::fill(out + end, out + width, padding);
    }
  }
  if (plan.cut > 0) blank_cutout(plan, channels, height, width, out - channels * height * width);
}

void blank_cutout(const AugmentPlan& plan, std::int64_t channels, std::int64_t height, std::int64_t width, float* out) {
  const std::int64_t left = std::clamp<std::int64_t>(plan.cut_x, 0, width),
                     right = std::clamp<std::int64_t>(plan.cut_x + plan.cut, left, width);
  const std::int64_t top = std::clamp<std::int64_t>(plan.cut_y, 0, height),
                     bottom = std::clamp<std::int64_t>(plan.cut_y + plan.cut, top, height);
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t y = top; y < bottom; ++y) std::fill_n(out + (c * height + y) * width + left, right - left, 0.0f);
}

}  // namespace paceline::data
