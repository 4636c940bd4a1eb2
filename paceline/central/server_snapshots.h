// Snapshots of a server process that does not lead (server 0 has the run's checkpoints): its range of the parameters and all that it keeps
// beside them, every ps.snapshot_s seconds, in the run's folder as servers/server-N.safetensors.
//
// A restarted server resumes from its last snapshot. Updates after that are lost, unless they are in its journal (ps.replica); the other
// servers keep theirs.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "paceline/central/recovery.h"
#include "paceline/step/state.h"

namespace paceline::central {

class ServerSnapshots {
 public:
  /// Files that are whole or not there: written beside and renamed, with checksums. read() throws DataError where one is damaged.
  struct Files {
    std::function<void(const std::filesystem::path&, const std::vector<step::NamedTensor>&)> write;
    std::function<std::vector<step::NamedTensor>(const std::filesystem::path&)> read;
  };

  /// Settings, server and clock outlive it.
  ServerSnapshots(const Settings& settings, ps::ConcurrentServer& concurrent, const Clock& clock, Files files);

  /// Before anybody is served.
  void begin() { recovery_.begin(); }
  /// The same where the server is started again. Takes up the last snapshot of this server of this run. Where there is none yet the server
  /// begins anew, and says so. Error where the recipe asks for no snapshots, DataError or ConfigError where the last one is damaged or of
  /// another model.
  void restore();
  /// A disk that is full must not end a run: the last good snapshot stays, with an alarm.
  void write_if_due();

 private:
  std::filesystem::path file() const { return recovery_.stem().string() + ".safetensors"; }
  std::int64_t load(std::span<const step::NamedTensor> snapshot);  // returns the number of the journal that follows

  const Settings& settings_;
  ps::ConcurrentServer& concurrent_;
  Files files_;
  Recovery recovery_;
  std::int64_t version_ = 0;  // of the last one
};

}  // namespace paceline::central
