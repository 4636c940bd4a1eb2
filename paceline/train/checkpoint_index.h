// A checkpoint in several files, which several workers have written: a folder of shards, each a plain safetensors file, and an index. It is
// complete once the index is in place, which comes last. Read and written without LibTorch (docs/checkpoints.md has the format).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/train/checkpoint_metadata.h"

namespace paceline::train {

/// As PyTorch's ecosystem calls it.
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

/// Where a box of a tensor stands, or all of it.
struct StoredPiece {
  std::size_t shard = 0;
  std::string stored;               // its name in the file
  std::vector<std::int64_t> first;  // of the box, in every dimension
};

struct IndexedTensor {
  std::string name;
  std::vector<std::int64_t> shape;       // of the whole
  std::vector<StoredPiece> pieces = {};  // ascending
};

struct CheckpointIndex {
  struct Shard {
    std::string file, seal;  // beside the index; the checksum of its metadata, which has those of its tensors
    std::int64_t bytes = 0;
  };
  CheckpointMetadata run;
  std::vector<Shard> shards;
  std::vector<IndexedTensor> tensors;  // in the order of the state

  /// Tensor (as it is stored) by file, which other programs read.
  std::vector<std::pair<std::string, std::string>> weight_map() const;
};

std::string shard_file(std::size_t shard, std::size_t shards);  // "shard-00001-of-00004.safetensors"

/// What a worker writes into the metadata of its shard: for each of `tensors`, which box of which tensor it is.
struct ShardBox {
  std::string tensor;
  std::vector<std::int64_t> first;
};
safetensors::Metadata pack_shard(std::span<const safetensors::Tensor> tensors, std::span<const ShardBox> boxes);

/// The index of shards that lie in `folder`, for tensors of which the names and shapes are known in their order. DataError where a shard
/// is missing or not whole.
CheckpointIndex index_shards(const std::filesystem::path& folder, std::size_t shards, const CheckpointMetadata& run,
                             std::vector<IndexedTensor> tensors);

std::string pack_index(const CheckpointIndex& index);
/// Checks all that the text itself says. DataError.
CheckpointIndex unpack_index(const std::string& file, std::string_view text);

/// Whether an index is that of a checkpoint, and not of weights alone.
bool is_checkpoint_index(std::string_view text);

/// Checks an open shard against the index. DataError.
void check_shard(const std::string& file, const safetensors::File& opened, const CheckpointIndex::Shard& expected, Check check);

/// The files that an index of weights names, each once. DataError where one lies elsewhere.
std::vector<std::string> files_of_index(const std::string& file, std::string_view text);

}  // namespace paceline::train
