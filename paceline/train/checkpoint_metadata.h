// The metadata of a checkpoint (docs/checkpoint_format.md), read and written without LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/base/safetensors.h"

namespace paceline::train {

/// Where a run stands between two steps.
struct Position {
  std::int64_t step = 0;           // steps done
  std::int64_t epoch = 0;          // epochs done
  std::int64_t batch = 0;          // batches done in the current epoch
  std::int64_t samples = 0;        // seen so far
  double loss_sum = 0, right = 0;  // of the current epoch, so that its means do not depend on where the run was interrupted
  std::int64_t targets = 0;
  double seconds = 0;             // of training so far
  std::int64_t dataset_size = 0;  // number of training samples; 0: unknown
  std::uint32_t vocabulary = 0;   // checksum of the characters of a text; 0: none, or unknown

  double mean_loss() const { return targets > 0 ? loss_sum / static_cast<double>(targets) : 0; }
  double mean_right() const { return targets > 0 ? right / static_cast<double>(targets) : 0; }
};

struct CheckpointMetadata {
  Position position;
  std::string recipe;  // TOML
  std::string network;
  std::vector<std::string> class_names = {};  // of the dataset, by label; empty: it has none
};

/// How thoroughly a checkpoint is checked. `structure` finds unfinished, truncated and exchanged files without reading a tensor.
enum class Check { structure, everything };

/// A file of weights that is intact, but has no position and state of a run.
class NotACheckpoint : public DataError {
 public:
  using DataError::DataError;
};

/// A checkpoint that another version of Paceline wrote. It may be intact, so no older one is taken in its place.
class OtherFormat : public DataError {
 public:
  using DataError::DataError;
};

/// Distinguishes a checkpoint, which may be damaged, from any other safetensors file.
bool is_checkpoint(const safetensors::Metadata& metadata);

/// With a checksum of every tensor, and the seal.
safetensors::Metadata pack_metadata(const CheckpointMetadata& content, std::span<const safetensors::Tensor> tensors);

/// Checks the metadata of `file`, and the tensors against it. DataError says what is damaged.
CheckpointMetadata unpack_metadata(const std::string& file, const safetensors::Metadata& metadata,
                                   std::span<const safetensors::Tensor> tensors, Check check = Check::everything);

/// {"format", "position", "recipe", "network"}, with "class_names" if there are any, and back. DataError.
safetensors::Metadata describe_run(const CheckpointMetadata& content);
CheckpointMetadata run_described(const std::string& file, const safetensors::Metadata& metadata);
/// JSON with the type, shape and checksum of every tensor; and whether `tensors` match it. DataError.
std::string inventory_of(std::span<const safetensors::Tensor> tensors);
void check_inventory(const std::string& file, const std::string& inventory, std::span<const safetensors::Tensor> tensors, Check check);
/// The value of a key. DataError if there is none.
const std::string& metadata_entry(const std::string& file, const safetensors::Metadata& metadata, const char* key);
/// DataError if the seal does not match.
void check_seal(const std::string& file, const safetensors::Metadata& metadata);

/// Checksum of everything in the metadata but the seal itself.
std::string seal_of(const safetensors::Metadata& metadata);

}  // namespace paceline::train
