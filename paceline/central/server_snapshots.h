// Snapshots of a server process that does not lead (server 0 has the run's checkpoints): its range of the parameters and all that it keeps
// beside them, every ps.snapshot_s seconds, in the run's folder as servers/server-N.safetensors.
//
// In a resumed run, the first snapshot is written before any worker is served, so that a server that is lost right afterwards can still
// restart.
//
// A restarted server resumes from its last snapshot. Updates after that are lost, unless they are in its journal (ps.replica); the other
// servers keep theirs.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "paceline/central/recovery.h"
#include "paceline/central/saved_servers.h"
#include "paceline/step/state.h"

namespace paceline::central {

class ServerSnapshots {
 public:
  /// Reads and writes snapshot files with checksums. A write is atomic: the file is complete, or it does not exist. read() throws DataError
  /// if one is damaged.
  struct Files {
    std::function<void(const std::filesystem::path&, const std::vector<step::NamedTensor>&)> write;
    std::function<std::vector<step::NamedTensor>(const std::filesystem::path&)> read;
  };

  /// Create it before serving. Settings, server and clock outlive it. A restarted server continues from its last snapshot; if there is none
  /// yet, it starts over and logs that. When first started, it begins with `checkpoint`, whose parameters it already has, or with its
  /// present state if that is null. Throws Error if a server is restarted and the recipe asks for no snapshots; DataError or ConfigError if
  /// the last snapshot is damaged or belongs to another model; ConfigError if the checkpoint does not fit.
  ServerSnapshots(const Settings& settings, ps::ConcurrentServer& concurrent, const Clock& clock, Files files,
                  const SavedServer* checkpoint);

  /// Must not end a run when the disk is full: the last good snapshot stays, and a warning is logged.
  void write_if_due();

 private:
  Beginning begin(const ServerFiles& places, const SavedServer* checkpoint);
  Beginning restore(const ServerFiles& places);
  std::int64_t load(std::span<const step::NamedTensor> snapshot,
                    const std::string& file);  // returns the number of the journal that follows
  void write(const std::filesystem::path& file);

  const Settings& settings_;
  ps::ConcurrentServer& concurrent_;
  Files files_;
  std::int64_t version_ = 0;  // of the last one
  bool restored_ = false;     // from one
  Recovery recovery_;         // last: it is made with what the server begins with
};

}  // namespace paceline::central
