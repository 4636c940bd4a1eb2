#include "paceline/data/image_set.h"

#include <limits>

#include "paceline/data/sets.h"

namespace paceline::data {

ImageSet::ImageSet(Info info, Images images, const DataConfig& config, Split split)
    : info_(std::move(info)),
      images_(std::move(images)),
      config_(config),
      normalisation_(info_),
      height_(info_.input.at(1)),
      width_(info_.input.at(2)),
      image_bytes_(info_.input.at(0) * height_ * width_) {
  ensure(static_cast<std::int64_t>(images_.bytes.size()) == size() * image_bytes_, "an image set has one label per image");
  ensure(size() <= std::numeric_limits<std::int32_t>::max(), "a plan names its sample in 32 bits");
  const std::int64_t count = samples_to_use(config, split, size());
  images_.labels.resize(static_cast<std::size_t>(count));
  images_.bytes.resize(static_cast<std::size_t>(count * image_bytes_));
}

void ImageSet::prepare(Batch& batch, std::int64_t count) const {
  batch.count = count;
  batch.inputs.resize(static_cast<std::size_t>(count * image_bytes_));
  batch.targets.resize(static_cast<std::size_t>(count));
}

AugmentPlan ImageSet::plan(std::int64_t index, RandomStream* random) const { return draw_plan(config_, index, height_, width_, random); }

void ImageSet::read(std::int64_t index, RandomStream* random, Batch& batch, std::int64_t slot) const {
  apply_plan(plan(index, random), images_.bytes.data() + index * image_bytes_, height_, width_, normalisation_,
             batch.inputs.data() + slot * image_bytes_);
  batch.targets[slot] = images_.labels[index];
}

}  // namespace paceline::data
