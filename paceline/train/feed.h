// Batches of a dataset on the module's device: through host memory, or, for image sets that fit, from a copy of the whole set on the GPU,
// where crop, flip, cutout and normalisation are one kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>

#include "paceline/data/loader.h"
#include "paceline/nn/model.h"
#include "paceline/step/strategy.h"

namespace paceline::train {

class Feed {
 public:
  virtual ~Feed() = default;
  /// `batch` is the global batch of this epoch; `first_batch` > 0 resumes in the middle of an epoch.
  virtual void start(std::int64_t epoch, std::int64_t batch, std::int64_t first_batch = 0) = 0;
  virtual std::int64_t batches() const = 0;
  /// The next batch; nullopt at the end of the epoch. Its tensors are valid until the next call; on a GPU they begin at the same place each
  /// time, so that a recorded step can be replayed on them.
  virtual std::optional<step::Batch> next() = 0;
};

/// A tensor of these sizes at the beginning of `longest`, which is made anew only if it is too short: a shorter batch leaves those after it
/// where they were.
at::Tensor in_place(at::Tensor& longest, at::IntArrayRef sizes, const at::TensorOptions& options,
                    at::MemoryFormat format = at::MemoryFormat::Contiguous);

/// A loader's batch as read-only tensors over the loader's own memory.
step::Batch as_tensors(const data::Batch& batch, const data::Info& info);

/// `residency`: "host", "device" or "auto" (on the GPU if the pixels fit in a quarter of its free memory and have no more channels than its
/// kernel supports). ConfigError if "device" is impossible.
std::unique_ptr<Feed> make_feed(const data::Dataset& dataset, const data::LoaderOptions& options, const data::DataConfig& config,
                                const nn::Model& module);

}  // namespace paceline::train
