// Which samples a worker reads, for torch::data's loaders.
#pragma once

#include <torch/data/samplers/base.h>
#include <torch/version.h>

#include <optional>
#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline {

#if TORCH_VERSION_MAJOR >= 2
template <class T>
using Optional = std::optional<T>;
#else
template <class T>
using Optional = c10::optional<T>;  // the type that earlier LibTorch versions use
#endif

/// Gives each worker its share of 0 … size−1, reshuffled in every epoch in an order that all workers compute alike. All shares have the
/// same size; if the total cannot be divided evenly, some samples occur twice.
class ShardedSampler : public torch::data::samplers::Sampler<> {
 public:
  ShardedSampler(std::size_t size, const comm::Communicator& comm, std::uint64_t seed = 0);

  void reset(Optional<std::size_t> new_size = {}) override;  // the next epoch
  Optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void draw();

  std::size_t size_;
  std::uint64_t rank_, workers_, seed_, epoch_ = 0;
  std::vector<std::size_t> share_;
  std::size_t next_ = 0;
};

}  // namespace paceline
