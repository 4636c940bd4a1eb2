// What other processes hold of a run's state, as its leader sees it (part_holder.h is their side). The leader receives their reports and
// hashes, and the values of tensors that are cut across their rows; everything else stays where it is.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "paceline/step/holders.h"
#include "paceline/train/checkpoint.h"

namespace paceline::train {

/// A process left after the roll call; those that remain must be asked again.
class HolderGone : public PeerError {
 public:
  explicit HolderGone(const std::string& name) : PeerError(-1, "checkpoint", 0, name + " is gone, and with it its part of the state") {}
};

/// What the hash of a state is continued with: a text, or the values of a tensor, by its number in the report of the process.
struct HashItem {
  std::string text;
  std::optional<std::size_t> tensor = {};
};

class OtherParts {
 public:
  /// Asks the processes of the last roll call what they hold. HolderGone. All numbers of processes begin at 1: the leader
  /// is number 0.
  OtherParts(step::Holders& holders, std::vector<std::string> names);

  std::size_t count() const { return names_.size(); }
  const std::vector<std::string>& reports() const { return reports_; }  // holdings.h; [i] is that of process i + 1
  /// "'fc1.weight' of server 1 is not finite"; nothing if all are.
  std::optional<std::string> fault() const;

  /// Process i copies its part, and begins to write it as shard i of `shards`.
  void write(const std::filesystem::path& folder, std::size_t shards);
  /// What went wrong; empty once all shards are on disk. Nothing as long as neither is known.
  std::optional<std::string> outcome(bool wait);

  /// The hash, continued by a process.
  ContentHash hash(std::size_t process, const ContentHash& so_far, const std::vector<HashItem>& items) const;
  /// The values of a tensor, by its number in the report of the process.
  std::string read(std::size_t process, std::size_t tensor) const;

 private:
  /// The answer of one process. HolderGone.
  std::string ask(std::size_t process, const std::string& order) const;
  std::filesystem::path file(std::size_t i) const;
  void ask_for_outcomes();

  step::Holders& holders_;
  std::vector<std::string> names_, reports_, not_finite_;
  std::filesystem::path folder_;  // of the shards
  std::size_t shards_ = 0;
  std::vector<std::optional<std::string>> problems_;  // of write(), once they are known; empty: its shard is on disk
  bool asked_ = false;                                // how far the others are, and not all of them have answered yet
};

}  // namespace paceline::train
