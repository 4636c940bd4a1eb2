// Snapshots of a server process that does not lead (server 0 has the run's checkpoints): its range of the parameters and all that it keeps
// beside them, every ps.snapshot_s seconds, in the run's folder as servers/server-N.safetensors. Written beside and renamed, with
// checksums.
//
// A server that is started again goes on from its last one. Updates after that are lost, unless they are in its journal (ps.replica); the
// other servers keep theirs.
#pragma once

#include "paceline/base/clock.h"
#include "paceline/observe/run_folder.h"
#include "paceline/ps/cluster.h"
#include "paceline/ps/host.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/recipe.h"

namespace paceline::train {

class ServerSnapshots {
 public:
  /// `host` outlives it.
  ServerSnapshots(const Recipe& recipe, const ps::Cluster& cluster, ps::Host& host);

  /// Before anybody is served.
  void begin();
  /// The same where the server is started again. Takes up the last snapshot of this server of this run. Where there is none yet the server
  /// begins anew, and says so. Error where the recipe asks for no snapshots, DataError or ConfigError where the last one is damaged or of
  /// another model.
  void restore();
  /// A disk that is full must not end a run: the last good snapshot stays, with an alarm.
  void write_if_due();

 private:
  std::filesystem::path file() const;
  std::filesystem::path stem() const;
  std::int64_t load(const Checkpoint& snapshot);  // returns the number of the journal that follows
  bool find_folder();
  void await_folder();  // waits until server 0 has created it; ConfigError on timeout
  ps::Journals& open_journals();

  const Recipe& recipe_;
  const ps::Cluster& cluster_;
  ps::Host& host_;
  SteadyClock clock_;
  std::optional<observe::RunFolder> folder_;
  Nanoseconds written_at_{0};
  std::int64_t version_ = 0;  // of the last one
  std::optional<ps::Journals> journals_;
};

}  // namespace paceline::train
