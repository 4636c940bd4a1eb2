// Writes the checkpoints of a run in the background. Training stops while a worker copies what it holds into host memory; a thread writes
// that to the disk while training goes on.
//
// What several workers have alike is shared out among those of them that see the run's folder, so that nobody copies and writes it all;
// what a worker alone has it writes itself. Where that makes one file, worker 0 writes it. Otherwise each worker writes a shard, and worker
// 0 the index once all of them say that theirs is on the disk, which they do at their next meeting. A disk that is full, or any other
// error, ends no run: the last good checkpoint stays, with an alarm.
#pragma once

#include <filesystem>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/comm/communicator.h"
#include "paceline/observe/event.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/checkpoint_index.h"
#include "paceline/train/checkpoint_pace.h"
#include "paceline/train/holdings.h"

namespace paceline::train {

class Checkpointer {
 public:
  /// At most `share` of the run's time, and so many are kept. All that it is given outlives it.
  Checkpointer(comm::Communicator& comm, observe::Bus& bus, const Clock& clock, double share, std::int64_t keep);

  /// The run's folder, which worker 0 has and tells the others. Collective.
  void open(const std::filesystem::path& run);

  /// Copies what this worker writes, and begins to write it. `good`: nothing is left that may show it to be bad, so that older ones may go.
  /// Where one is under way it ends first. Collective.
  void begin(const CheckpointMetadata& metadata, std::span<const NamedTensor> tensors, bool good);
  /// For how long training stood still for the last one.
  void paused(double seconds) { pace_.spent(seconds), total_.paused_s += seconds; }
  /// What all of them took so far.
  const observe::Checkpointing& total() const { return total_; }
  /// Waits until the last one that was begun is complete, or has failed, and says which. Collective.
  bool finish();
  /// The model turned out to be good at `step`, and so is the last checkpoint: older ones may go. Worker 0 calls it.
  void accept(std::int64_t step);

  /// What the workers add up whenever they meet, and what it came to: so worker 0 learns that all parts are on the disk.
  double progress();
  void heard(double sum);

  /// What worker 0 thinks of another checkpoint now: not yet, one at the end of an epoch, or one at once.
  enum class Wish { none, at_epoch, now };
  Wish wish() const;

  std::filesystem::path folder() const { return run_ / "checkpoints"; }

 private:
  struct Outcome {
    std::int64_t bytes = 0;
    double cpu_s = 0;
    std::string problem;  // empty: it is on the disk
  };
  /// The one that is under way.
  struct Pending {
    std::int64_t step = 0;
    CheckpointMetadata run;
    std::vector<IndexedTensor> tensors;
    std::size_t shards = 1;
    Nanoseconds began{0};
    bool good = false;
    std::future<Outcome> part;                // this worker's
    std::optional<Outcome> written;           // the same, once it is there
    bool concluded = false, lost = false;     // it is known to all that all parts are there; that one never will be
    std::optional<std::future<Outcome>> all;  // worker 0: the index
    std::optional<bool> result;               // on worker 0; where it is lost, or has no index, on all
  };

  bool leads() const { return comm_.rank() == 0; }
  std::filesystem::path place() const;
  std::vector<NamedTensor> own_part(std::span<const NamedTensor> tensors, const std::vector<HeldTensor>& holdings,
                                    std::size_t& shards) const;
  bool part_is_there();
  void conclude(bool failed);  // all parts are there, or one will never be; collective
  void write_index();
  void lose();  // collective
  void alarm(const std::string& problem);
  bool take_outcome(const Outcome& outcome);  // of the whole, on worker 0
  void prune(const std::filesystem::path& written);

  comm::Communicator& comm_;
  observe::Bus& bus_;
  const Clock& clock_;
  std::int64_t keep_;
  CheckpointPace pace_;
  std::filesystem::path run_;
  std::vector<int> writers_;  // workers that see the folder
  std::optional<Pending> pending_;
  std::future<void> pruning_;
  observe::Checkpointing total_;
  bool last_good_ = true;  // the last one that has ended
  std::int64_t alarmed_step_ = -1;
};

}  // namespace paceline::train
