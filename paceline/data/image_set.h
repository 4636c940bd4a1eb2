// Images of equal size that are all in memory as bytes: shapes, random, mnist, cifar10, cifar100. Such a set can also be kept on the GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "paceline/data/augment.h"
#include "paceline/data/dataset.h"

namespace paceline::data {

struct Images {
  std::vector<std::uint8_t> bytes;   // count × C × H × W
  std::vector<std::int64_t> labels;  // count
};

class ImageSet final : public Dataset {
 public:
  /// Keeps as many of the images as the configuration asks for.
  ImageSet(Info info, Images images, const DataConfig& config, Split split);

  const Info& info() const override { return info_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(images_.labels.size()); }
  void prepare(Batch& batch, std::int64_t count) const override;
  void read(std::int64_t index, RandomStream* random, Batch& batch, std::int64_t slot) const override;
  std::optional<Pixels> pixels() const override { return Pixels{images_.bytes, images_.labels}; }
  AugmentPlan plan(std::int64_t index, RandomStream* random) const override;

 private:
  Info info_;
  Images images_;
  DataConfig config_;
  Normalisation normalisation_;
  std::int64_t height_, width_, image_bytes_;
};

}  // namespace paceline::data
