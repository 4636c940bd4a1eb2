#include "paceline/data/sampler.h"

#include <fmt/format.h>

#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/random.h"

namespace paceline::data {
namespace {

std::int64_t checked_batch(std::int64_t batch) {
  if (batch < 1) throw ConfigError(fmt::format("data.batch must be at least 1, not {}", batch));
  return batch;
}

}  // namespace

Sampler::Sampler(std::int64_t size, std::int64_t batch, bool shuffle, bool drop_last, std::uint64_t seed, std::int64_t multiple)
    : size_(size),
      batch_(checked_batch(batch)),
      multiple_(multiple),
      shuffle_(shuffle),
      drop_last_(drop_last),
      seed_(seed),
      order_(static_cast<std::size_t>(size)) {}

void Sampler::start(std::int64_t epoch, std::int64_t batch) {
  if (drop_last_ && checked_batch(batch) > size_)
    throw ConfigError(
        fmt::format("data.batch={}, but there are only {} samples, and data.drop_last leaves out an incomplete batch; lower data.batch, or "
                    "set data.drop_last=false",
                    batch, size_));
  batch_ = checked_batch(batch);
  order_.resize(static_cast<std::size_t>(size_));
  std::iota(order_.begin(), order_.end(), 0);
  if (shuffle_) RandomStream(seed_, Purpose::shuffle, 0, static_cast<std::uint64_t>(epoch)).shuffle(std::span(order_));
  if (multiple_ > 1) repeat_samples();
}

void Sampler::repeat_samples() {
  std::vector<std::int64_t> once = std::move(order_);
  order_.clear();
  for (std::int64_t index = 0; index < batches(); ++index)
    for (std::int64_t i = 0; i < count(index); ++i) order_.push_back(once[static_cast<std::size_t>(index * batch_ + i % different(index))]);
}

std::int64_t Sampler::batches() const { return (drop_last_ ? size_ : size_ + batch_ - 1) / batch_; }

std::span<const std::int64_t> Sampler::share(std::int64_t index, int rank, int workers) const {
  ensure(index >= 0 && index < batches() && rank >= 0 && rank < workers,
         "a share is of a batch of the epoch and of a worker that there is");
  const std::int64_t first = index * filled(batch_), count = this->count(index);
  const std::int64_t begin = first + count * rank / workers, end = first + count * (rank + 1) / workers;
  return std::span(order_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

}  // namespace paceline::data
