// From a dataset to batches: the order of an epoch, a worker's share of it, and threads that prepare batches ahead.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "paceline/data/dataset.h"

namespace paceline::data {

/// The order of one epoch. Global batch k is order[k·batch … (k+1)·batch); worker r of w takes the r-th of w near-equal parts of it, so
/// that any number of workers sees the same global batches and every sample is used exactly once. With `multiple` > 1, every batch,
/// including the ragged one, repeats some of its samples until its size is a multiple of it; then all workers' parts of a batch have equal
/// size.
class Sampler {
 public:
  Sampler(std::int64_t size, std::int64_t batch, bool shuffle, bool drop_last, std::uint64_t seed, std::int64_t multiple = 1);

  void start(std::int64_t epoch, std::int64_t batch);  // draws the epoch's order; the batch may differ from epoch to epoch
  std::int64_t batches() const;                        // of the current epoch
  /// Samples of global batch `index` that worker `rank` of `workers` reads; valid until the next start(). Empty for some workers if the
  /// (ragged) batch has fewer samples than there are workers.
  std::span<const std::int64_t> share(std::int64_t index, int rank, int workers) const;
  std::int64_t count(std::int64_t index) const { return filled(different(index)); }  // samples of global batch `index`

 private:
  std::int64_t different(std::int64_t index) const { return std::min(batch_, size_ - index * batch_); }
  std::int64_t filled(std::int64_t count) const { return (count + multiple_ - 1) / multiple_ * multiple_; }
  void repeat_samples();

  std::int64_t size_, batch_, multiple_;
  bool shuffle_, drop_last_;
  std::uint64_t seed_;
  std::vector<std::int64_t> order_;
};

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

/// The same for a set whose pixels() are on the GPU: how each sample of the share is augmented, with the draws that fill_batch would make.
void draw_plans(const Dataset& dataset, const LoaderOptions& options, const Sampler& sampler, std::int64_t epoch, std::int64_t index,
                std::vector<AugmentPlan>& plans);

/// Prepares each batch on demand.
std::unique_ptr<BatchSource> make_loader(const Dataset& dataset, const LoaderOptions& options);

/// Prepares batches ahead in `threads` background threads (0: none, the same as make_loader); the order and the bits are those of
/// make_loader. An exception in a thread is rethrown by the next() that would have returned its batch.
std::unique_ptr<BatchSource> make_prefetching_loader(const Dataset& dataset, const LoaderOptions& options, int threads, int ahead);

}  // namespace paceline::data
