// Checkpoints: safetensors with the model under "model.", the strategy's state under its own names, and beside them the position of the
// run, the recipe, a checksum of every tensor and one of the metadata. No code in them, and but for parameter servers nothing that only the
// same number of workers could go on from: what they have each for itself is a row of one tensor.
//
// Where one worker has everything, a checkpoint is one file, written beside and renamed. Where several write, it is a folder: a shard for
// each, and an index that comes last (checkpoint_index.h). So a kill at any moment leaves the last one whole. A damaged one is noticed by
// its checksums, whichever byte it is.
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

using step::NamedTensor;

struct Checkpoint {
  Position position;
  std::string recipe;  // TOML
  std::string network;
  std::vector<NamedTensor> tensors;  // "model.…" and the strategy's
  std::vector<std::string> class_names = {};
};

/// One file with all tensors, which are whole.
FileStamp write_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint);

/// Opens and checks a checkpoint, a file or a folder. DataError says what is damaged. Its tensors lie in the files: what nobody looks at is
/// not read.
Checkpoint read_checkpoint(const std::filesystem::path& path, Check check = Check::everything);

/// The complete checkpoints of a folder, newest first. `path` may be a run, its checkpoint folder or a checkpoint. DataError where nobody
/// may look.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& path);

/// The newest checkpoint that is whole; warns about those that are not. DataError where there is none.
std::pair<std::filesystem::path, Checkpoint> newest_good_checkpoint(const std::filesystem::path& path, Check check = Check::everything);

/// Removes a checkpoint, so that at no moment half of it looks whole.
void remove_checkpoint(const std::filesystem::path& path);

/// Removes folders of checkpoints in which there is no index, and half-written files: whoever wrote them was killed. `before`: only those
/// of earlier steps than that checkpoint's, since later ones may be in the making.
void remove_unfinished(const std::filesystem::path& folder, const std::filesystem::path& before = {});

/// Removes all but `keep` from the folder of the one just `written`, which stays with the newest of the others, and what is unfinished.
/// What the disk does not let go stays: that must not end a run.
void prune_checkpoints(const std::filesystem::path& written, std::int64_t keep);

/// Moves a folder's checkpoints behind a step into a folder of their own in it, where nobody looks who is not told to: another way from
/// there on must not be mixed with theirs. Returns where they are, nothing where there were none. ConfigError where the disk refuses.
std::optional<std::filesystem::path> set_aside_behind(std::int64_t step, const std::filesystem::path& folder);

/// Where the checkpoint of a step is: one file, or a folder where several workers write.
std::filesystem::path checkpoint_file(const std::filesystem::path& folder, std::int64_t step);
std::filesystem::path checkpoint_folder(const std::filesystem::path& folder, std::int64_t step);

/// Copies `saved` into `targets` by name. ConfigError lists names and shapes that do not fit; then nothing has changed.
void restore(std::span<const NamedTensor> saved, std::span<const NamedTensor> targets, const std::string& source);

/// Hash of names, shapes and values: two runs that end in the same state have the same, however many workers and files hold it.
std::string state_hash(std::span<const NamedTensor> tensors);
/// The same where each worker has what it holds: the hash goes from one to the next, and no tensor does. Collective.
std::string state_hash(std::span<const NamedTensor> tensors, comm::Communicator& comm);

}  // namespace paceline::train
