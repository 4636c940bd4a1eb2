// Checkpoints: safetensors with the model under "model.", the strategy's state under its own names, the position of the run, the recipe, a
// checksum of every tensor and one of the metadata. They contain no code and, except for parameter servers, nothing that ties them to the
// number of workers: per-worker state is a row of one tensor.
//
// If one worker has everything, a checkpoint is one file, written under another name and renamed. If several workers write, it is a folder:
// a shard for each, and an index that is written last (checkpoint_index.h). So a kill at any moment leaves the previous one intact. The
// checksums detect damage to any byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/files.h"
#include "paceline/comm/communicator.h"
#include "paceline/step/strategy.h"
#include "paceline/train/checkpoint_metadata.h"

namespace paceline::train {

class OtherParts;
using step::NamedTensor;

struct Checkpoint {
  Position position;
  std::string recipe;  // TOML
  std::string network;
  std::vector<NamedTensor> tensors;  // "model.…" and the strategy's
  std::vector<std::string> class_names = {};
};

/// Writes one file with all tensors, which must be whole.
FileStamp write_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint);

/// Opens and checks a checkpoint, a file or a folder. DataError says what is damaged. Its tensors are mapped: what is not accessed is not
/// read.
Checkpoint read_checkpoint(const std::filesystem::path& path, Check check = Check::everything);

/// The complete checkpoints of a folder, newest first. `path` may be a run, its checkpoint folder or a checkpoint. DataError if it cannot
/// be read.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& path);

using FoundCheckpoint = std::pair<std::filesystem::path, Checkpoint>;  // and where it is

/// The newest checkpoint that is intact; warns about those that are not. DataError if there is none.
FoundCheckpoint newest_good_checkpoint(const std::filesystem::path& path, Check check = Check::everything);

/// Removes a checkpoint in such an order that a partly removed one never looks complete.
void remove_checkpoint(const std::filesystem::path& path);

/// Removes checkpoint folders without an index, and half-written files: their writer was killed. `before`: only those of earlier steps than
/// that checkpoint's, since later ones may still be being written.
void remove_unfinished(const std::filesystem::path& folder, const std::filesystem::path& before = {});

/// Removes all but `keep` checkpoints from the folder of the one just `written`, which stays with the newest of the others, and unfinished
/// ones. What cannot be removed stays: that must not end a run.
void prune_checkpoints(const std::filesystem::path& written, std::int64_t keep);

/// Moves a folder's checkpoints after a step into a subfolder, where they are not found by default: a run that continues differently from
/// that step must not be mixed with them. Returns where they are; empty if there were none. ConfigError if the disk refuses.
std::optional<std::filesystem::path> set_aside_behind(std::int64_t step, const std::filesystem::path& folder);

/// The path of a step's checkpoint: a file, or a folder if several workers write.
std::filesystem::path checkpoint_file(const std::filesystem::path& folder, std::int64_t step);
std::filesystem::path checkpoint_folder(const std::filesystem::path& folder, std::int64_t step);

/// Copies `saved` into `targets` by name. ConfigError lists names and shapes that do not match; then nothing has changed.
void restore(std::span<const NamedTensor> saved, std::span<const NamedTensor> targets, const std::string& source);

/// A hash of names, shapes and values: two runs that end in the same state have the same hash, however many workers and files hold it.
std::string state_hash(std::span<const NamedTensor> tensors);
/// The same if other processes hold parts of it; of the tensors whose names begin like this. HolderGone.
std::string state_hash(std::span<const NamedTensor> tensors, const OtherParts& others, std::string_view beginning = {});
/// The same if each worker has a part: the hash is passed from one to the next. Only tensors whose parts interleave (columns) are sent
/// themselves, one at a time. Collective.
std::string state_hash(std::span<const NamedTensor> tensors, comm::Communicator& comm);

}  // namespace paceline::train
