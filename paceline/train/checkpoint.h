// Checkpoints: one safetensors file each, with the model under "model.", the strategy's state under its own names, and in the metadata
// the position of the run, the recipe, a checksum of every tensor and one of the metadata. No code in it, and but for parameter servers
// nothing that only the same number of workers could go on from: what they have each for itself is a row of one tensor.
//
// A checkpoint is written beside and renamed, so a kill at any moment leaves the last one whole. A damaged one is noticed by its checksums,
// whichever byte it is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/files.h"
#include "paceline/step/strategy.h"
#include "paceline/train/checkpoint_metadata.h"

namespace paceline::train {

using step::NamedTensor;

struct Checkpoint {
  Position position;
  std::string recipe;  // TOML
  std::string network;
  std::vector<NamedTensor> tensors;  // "model.…" and the strategy's
};

FileStamp write_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint);

/// Reads and checks. DataError says what is damaged.
Checkpoint read_checkpoint(const std::filesystem::path& file);

/// The checkpoints of a folder, newest first. `path` may be a run, its checkpoint folder or a file. DataError where nobody may look.
std::vector<std::filesystem::path> list_checkpoints(const std::filesystem::path& path);

/// The newest checkpoint that is whole; warns about those that are not. DataError where there is none.
std::pair<std::filesystem::path, Checkpoint> newest_good_checkpoint(const std::filesystem::path& path);

/// Removes all but `keep` from the folder of the one just `written`, which stays with the newest of the others, and what a writer that was
/// killed left half-written. What the disk does not let go stays: that must not end a run.
void prune_checkpoints(const std::filesystem::path& written, std::int64_t keep);

/// Moves a folder's checkpoints behind a step into a folder of their own in it, where nobody looks who is not told to: another way from
/// there on must not be mixed with theirs. Returns where they are, nothing where there were none. ConfigError where the disk refuses.
std::optional<std::filesystem::path> set_aside_behind(std::int64_t step, const std::filesystem::path& folder);

std::filesystem::path checkpoint_file(const std::filesystem::path& folder, std::int64_t step);

/// Copies `saved` into `targets` by name. ConfigError lists names and shapes that do not fit; then nothing has changed.
void restore(std::span<const NamedTensor> saved, std::span<const NamedTensor> targets, const std::string& source);

/// Hash of names, shapes and values: two runs that end in the same state have the same.
std::string state_hash(std::span<const NamedTensor> tensors);

}  // namespace paceline::train
