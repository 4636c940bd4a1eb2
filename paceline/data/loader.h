// From a dataset to a worker's share of each batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "paceline/data/dataset.h"
#include "paceline/data/sampler.h"

namespace paceline::data {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual void start(std::int64_t epoch, std::int64_t batch, std::int64_t first_batch = 0) = 0;  // first_batch > 0: resume inside the epoch
  virtual std::int64_t batches() const = 0;
  /// The next batch, or null at the end of the epoch. It stays valid until the next call.
  virtual const Batch* next() = 0;
};

struct LoaderOptions {
  std::int64_t batch = 64;
  int rank = 0, workers = 1;
  bool shuffle = true, augment = false, drop_last = true;
  bool pad = false;  // repeat samples until the workers can share a batch evenly
  std::uint64_t seed = 0;
};
Sampler make_sampler(const Dataset& dataset, const LoaderOptions& options);

/// Reads the share of a worker: batch `index` of `epoch`, which `sampler` has started.
void fill_batch(const Dataset& dataset, const LoaderOptions& options, const Sampler& sampler, std::int64_t epoch, std::int64_t index,
                Batch& batch);

/// The same for a dataset whose pixels() are on the GPU: how each sample of the share is augmented, with the random numbers that fill_batch
/// would draw.
void draw_plans(const Dataset& dataset, const LoaderOptions& options, const Sampler& sampler, std::int64_t epoch, std::int64_t index,
                std::vector<AugmentPlan>& plans);

/// Prepares each batch on demand.
std::unique_ptr<BatchSource> make_loader(const Dataset& dataset, const LoaderOptions& options);

}  // namespace paceline::data
