// A checkpoint in several files, written by several workers: a folder of shards, each a plain safetensors file, and an index. The index is
// written last, and makes it complete. Read and written without LibTorch (docs/checkpoint_format.md has the format).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/train/checkpoint_metadata.h"

namespace paceline::train {

/// The name that PyTorch's ecosystem uses.
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

/// Where a box of a tensor, or all of it, is stored.
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
    std::string file, seal;  // in the index's folder; the checksum of its metadata, which has those of its tensors
    std::int64_t bytes = 0;
  };
  CheckpointMetadata run;
  std::vector<Shard> shards;
  std::vector<IndexedTensor> tensors;  // in the order of the state

  /// The file of each stored tensor, for other programs.
  std::vector<std::pair<std::string, std::string>> weight_map() const;
};

std::string shard_file(std::size_t shard, std::size_t shards);  // "shard-00001-of-00004.safetensors"

/// What a worker writes to the metadata of its shard: for each of `tensors`, which box of which tensor it is.
struct ShardBox {
  std::string tensor;
  std::vector<std::int64_t> first;
};
safetensors::Metadata pack_shard(std::span<const safetensors::Tensor> tensors, std::span<const ShardBox> boxes);

/// The index of the shards in `folder`, for tensors whose names, shapes and order are known. DataError if a shard is missing or
/// incomplete.
CheckpointIndex index_shards(const std::filesystem::path& folder, std::size_t shards, const CheckpointMetadata& run,
                             std::vector<IndexedTensor> tensors);

std::string pack_index(const CheckpointIndex& index);
/// Checks everything that the text itself determines. DataError.
CheckpointIndex unpack_index(const std::string& file, std::string_view text);

/// Whether an index belongs to a checkpoint, and not to weights alone.
bool is_checkpoint_index(std::string_view text);

/// Checks an open shard against the index. DataError.
void check_shard(const std::string& file, const safetensors::File& opened, const CheckpointIndex::Shard& expected, Check check);

/// The files that an index of weights names, each once. DataError if one is in another folder.
std::vector<std::string> files_of_index(const std::string& file, std::string_view text);

}  // namespace paceline::train
