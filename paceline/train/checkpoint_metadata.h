// What the metadata of a checkpoint says (docs/checkpoints.md), read and written without LibTorch.
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
  std::int64_t batch = 0;          // batches done of the present epoch
  std::int64_t samples = 0;        // seen in all
  double loss_sum = 0, right = 0;  // of the last epoch that was begun, so that its means do not depend on where it was cut
  std::int64_t targets = 0;
  double seconds = 0;             // of training so far
  std::int64_t dataset_size = 0;  // training samples that there are; 0: not known
  std::uint32_t vocabulary = 0;   // checksum of the characters of a text; 0: none, or not known

  double mean_loss() const { return targets > 0 ? loss_sum / static_cast<double>(targets) : 0; }
  double mean_right() const { return targets > 0 ? right / static_cast<double>(targets) : 0; }
};

struct CheckpointMetadata {
  Position position;
  std::string recipe;  // TOML
  std::string network;
  std::vector<std::string> class_names = {};  // of the dataset, by label; empty: it has none
};

/// How closely a checkpoint is looked at. By its structure: what was never finished, cut or exchanged is noticed, and no tensor is read.
enum class Check { structure, everything };

/// A file of weights, whole as such, but without a run's position and state.
class NotACheckpoint : public DataError {
 public:
  using DataError::DataError;
};

/// Tells a checkpoint, which may be damaged, from any other file of safetensors.
bool is_checkpoint(const safetensors::Metadata& metadata);

/// With a checksum of every tensor, and the seal.
safetensors::Metadata pack_metadata(const CheckpointMetadata& content, std::span<const safetensors::Tensor> tensors);

/// Checks the metadata of `file`, and the tensors against it. DataError says what is damaged.
CheckpointMetadata unpack_metadata(const std::string& file, const safetensors::Metadata& metadata,
                                   std::span<const safetensors::Tensor> tensors, Check check = Check::everything);

/// {"format", "position", "recipe", "network"}, with "class_names" where there are some, and back. DataError.
safetensors::Metadata describe_run(const CheckpointMetadata& content);
CheckpointMetadata run_described(const std::string& file, const safetensors::Metadata& metadata);
/// A text of JSON with type, shape and checksum of every tensor; and whether `tensors` are those. DataError.
std::string inventory_of(std::span<const safetensors::Tensor> tensors);
void check_inventory(const std::string& file, const std::string& inventory, std::span<const safetensors::Tensor> tensors, Check check);
/// What is under a key. DataError where nothing is.
const std::string& metadata_entry(const std::string& file, const safetensors::Metadata& metadata, const char* key);
/// DataError where the seal does not fit.
void check_seal(const std::string& file, const safetensors::Metadata& metadata);

/// Checksum of everything in the metadata but the seal itself.
std::string seal_of(const safetensors::Metadata& metadata);

}  // namespace paceline::train
