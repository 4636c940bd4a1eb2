// Writes a file of a checkpoint in a thread of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "paceline/base/clock.h"
#include "paceline/train/checkpoint_index.h"
#include "paceline/train/tensor_file.h"

namespace paceline::train {

struct Written {
  std::int64_t bytes = 0;
  double cpu_s = 0, seconds = 0;  // by the writer's processor; by the clock
  std::string problem;            // empty: it is on disk
};

/// Of the calling thread so far.
double thread_cpu_s();

/// Copies of tensors, and the boxes that they are.
struct ShardCopy {
  explicit ShardCopy(std::span<const step::NamedTensor> tensors) : host(tensors, /*always=*/true) {
    for (const step::NamedTensor& item : tensors) boxes.push_back({item.name, item.first()});
  }
  safetensors::Metadata metadata() const { return pack_shard(host.views(), boxes); }

  HostTensors host;
  std::vector<ShardBox> boxes;
};

/// Whether the writer of a file creates its folder. On a host that cannot access the run's it must not.
enum class MakeFolder { no, yes };

/// Writes the copy, which it frees, with what `metadata` makes of it. `clock` outlives the future.
std::future<Written> write_in_background(const Clock& clock, const std::filesystem::path& file, MakeFolder folder,
                                         std::unique_ptr<const ShardCopy> copy,
                                         std::function<safetensors::Metadata(const ShardCopy&)> metadata = &ShardCopy::metadata);

}  // namespace paceline::train
