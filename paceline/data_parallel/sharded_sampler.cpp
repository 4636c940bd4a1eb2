#include "paceline/data_parallel/sharded_sampler.h"

#include <torch/serialize.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/random.h"

namespace paceline {

ShardedSampler::ShardedSampler(std::size_t size, const comm::Communicator& comm, std::uint64_t seed)
    : size_(size), rank_(static_cast<std::uint64_t>(comm.rank())), workers_(static_cast<std::uint64_t>(comm.size())), seed_(seed) {
  if (size == 0) throw ConfigError("the dataset is empty; a sampler needs at least one sample");
  draw();
}

void ShardedSampler::draw() {
  std::vector<std::size_t> order(size_);
  std::iota(order.begin(), order.end(), 0);
  RandomStream(seed_, Purpose::shuffle, 0, epoch_).shuffle(std::span(order));
  const std::size_t each = (size_ + workers_ - 1) / workers_;
  share_.clear();
  for (std::size_t i = 0; i < each; ++i) share_.push_back(order[(i * workers_ + rank_) % size_]);
  next_ = 0;
}

void ShardedSampler::reset(Optional<std::size_t> new_size) {
  size_ = new_size.value_or(size_);
  ++epoch_;
  draw();
}

Optional<std::vector<std::size_t>> ShardedSampler::next(std::size_t batch_size) {
  const std::size_t count = std::min(batch_size, share_.size() - next_);
  if (count == 0) return {};
  const auto begin = share_.begin() + static_cast<std::ptrdiff_t>(next_);
  next_ += count;
  return std::vector<std::size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void ShardedSampler::save(torch::serialize::OutputArchive& archive) const {
  const std::vector<std::int64_t> values = {static_cast<std::int64_t>(epoch_), static_cast<std::int64_t>(next_),
                                            static_cast<std::int64_t>(size_), static_cast<std::int64_t>(workers_),
                                            static_cast<std::int64_t>(seed_)};
  archive.write("position", torch::tensor(values, torch::kLong), true);
}

void ShardedSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor position = torch::empty({0}, torch::kLong);
  archive.read("position", position, true);
  const auto value = [&](std::int64_t index) { return static_cast<std::uint64_t>(position[index].item<std::int64_t>()); };
  if (position.numel() != 5 || value(2) != size_ || value(3) != workers_ || value(4) != seed_)
    throw ConfigError(
        fmt::format("the saved state of the sampler is not for {} samples among {} workers with seed {}, so its position means nothing "
                    "here; start an epoch instead of loading it",
                    size_, workers_, seed_));
  epoch_ = value(0);
  draw();
  next_ = std::min<std::size_t>(value(1), share_.size());
}

}  // namespace paceline
