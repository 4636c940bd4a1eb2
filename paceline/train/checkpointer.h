// Writes the checkpoints of a run in the background. Training pauses while a worker copies its state to host memory; a thread then writes
// it to disk while training continues.
//
// Replicated state is divided among those of its holders that can access the run's folder, so that none copies and writes all of it; a
// worker writes what it alone holds. If that makes one file, worker 0 writes it. Otherwise each worker writes a shard, and worker 0 the
// index once all have reported that theirs is on disk, which they do the next time they meet. Servers and workers of a parameter server
// that are processes write shards too: worker 0, the only one, tells them to, and asks them whether theirs is on disk. A full disk, or any
// other error, does not end a run: the last good checkpoint stays, and an alarm says why.
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
#include "paceline/train/other_parts.h"
#include "paceline/train/shard_write.h"

namespace paceline::train {

class Checkpointer {
 public:
  struct Settings {
    double share = 1, guess = 0;  // CheckpointPace
    std::int64_t keep = 2;        // checkpoints
    bool writes = true;           // false: no checkpoint is written, and the folder is left alone
  };

  /// Worker 0 sends the run's folder to the others. Collective. Communicator, bus and clock outlive it.
  Checkpointer(comm::Communicator& comm, observe::Bus& bus, const Clock& clock, const std::filesystem::path& run, const Settings& settings);

  /// Copies what this worker writes, and starts writing it. `good`: the state is known to be good, so older checkpoints may be
  /// removed. `others`: processes that hold the rest of the state. Completes one that is in progress first. Collective.
  void begin(const CheckpointMetadata& metadata, std::span<const NamedTensor> tensors, bool good,
             const std::shared_ptr<OtherParts>& others = nullptr);
  /// Adds to the time for which training paused.
  void paused(double seconds) { pace_.spent(seconds), total_.paused_s += seconds; }
  /// Adds to the time that the end of the run spent waiting for finish().
  void waited(double seconds) { pace_.spent(seconds), total_.final_wait_s += seconds; }
  /// The cost of all checkpoints so far.
  const observe::Checkpointing& total() const { return total_; }
  /// Waits until the last one is complete or has failed; returns whether it is complete. Collective.
  bool finish();
  /// The last one that was written completely, on worker 0; empty if there is none yet.
  const std::filesystem::path& last() const { return last_; }
  /// The model was found to be good at `step`, and with it the last checkpoint: older ones may be removed. Called on worker 0.
  void accept(std::int64_t step);

  /// Each worker's contribution to sums over all of them, and those sums, at every report: so worker 0 learns that all parts are on disk,
  /// and what they cost.
  struct Progress {
    double parts = 0, writers = 0, cpu_s = 0;
  };
  Progress progress();
  void heard(const Progress& sum);

  /// Whether worker 0 wants another checkpoint: not yet, at the end of an epoch, or at once.
  enum class Wish { none, at_epoch, now };
  Wish wish() const;

  std::filesystem::path folder() const { return run_ / "checkpoints"; }

 private:
  /// The one in progress.
  struct Pending {
    std::int64_t step = 0;
    CheckpointMetadata run;
    std::vector<IndexedTensor> tensors;
    std::size_t shards = 1;
    Nanoseconds began{0};
    bool good = false;
    std::future<Written> part;                // this worker's
    std::optional<Written> written;           // its result, once it is known
    std::shared_ptr<OtherParts> others;       // the parts that other processes write; null if there are none
    std::optional<std::string> problem;       // of any part, once that is known; empty: all parts are on disk
    Nanoseconds asked{0};                     // when the other processes were last asked whether their parts are on disk
    bool concluded = false, lost = false;     // all workers know that all parts are on disk; that one never will be
    std::optional<std::future<Written>> all;  // worker 0: the index
    std::optional<bool> result;               // known to worker 0; to all workers if it is lost, or is one file
  };

  bool leads() const { return comm_.rank() == 0; }
  std::filesystem::path place() const;
  std::vector<NamedTensor> own_part(std::span<const NamedTensor> tensors, const std::vector<HeldTensor>& holdings, std::size_t others,
                                    std::size_t& shards) const;
  bool part_is_there();
  bool parts_are_there(bool wait);
  void conclude(const Progress& sum);  // all parts are on disk, or one never will be; collective
  void write_index();
  void lose();  // collective
  void alarm(const std::string& problem);
  bool take_outcome(const Written& outcome);  // of the whole, on worker 0
  bool take_index();
  void charge(double cpu_s, double writers);
  void prune(const std::filesystem::path& written);

  comm::Communicator& comm_;
  observe::Bus& bus_;
  const Clock& clock_;
  std::int64_t keep_;
  CheckpointPace pace_;
  std::filesystem::path run_;
  std::vector<int> writers_;  // workers that can access the folder
  std::optional<Pending> pending_;
  std::future<double> pruning_;  // its CPU time
  observe::Checkpointing total_;
  bool last_good_ = true;  // the last one that has ended
  std::int64_t alarmed_step_ = -1;
  std::filesystem::path last_;
};

}  // namespace paceline::train
