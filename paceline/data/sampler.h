// The order in which an epoch reads its samples, and each worker's share of every batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

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

}  // namespace paceline::data
