// Snapshots of a server process that does not lead (server 0 has the run's checkpoints): its range of the parameters and all that it keeps
// beside them, every ps.snapshot_s seconds, in the run's folder as servers/server-N.safetensors.
//
// The first of a run that is resumed is written before anybody is served: a server that is lost right after that has its checkpoint too.
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

  /// Before anybody is served. Settings, server and clock outlive it. A server that is started again takes up its last snapshot; where
  /// there is none yet it begins anew, and says so. In its first life it begins with `checkpoint`, unless that is null, or with what it
  /// has. Error where a server is started again and the recipe asks for no snapshots, DataError or ConfigError where the last one is
  /// damaged or of another model, ConfigError where the checkpoint does not fit.
  ServerSnapshots(const Settings& settings, ps::ConcurrentServer& concurrent, const Clock& clock, Files files,
                  const std::vector<step::NamedTensor>* checkpoint);

  /// A disk that is full must not end a run: the last good snapshot stays, with an alarm.
  void write_if_due();

 private:
  void restore();
  void begin_with(std::span<const step::NamedTensor> checkpoint);
  std::int64_t load(std::span<const step::NamedTensor> snapshot,
                    const std::string& file);  // returns the number of the journal that follows
  void write(const std::filesystem::path& file);

  const Settings& settings_;
  ps::ConcurrentServer& concurrent_;
  Files files_;
  Recovery recovery_;
  std::int64_t version_ = 0;  // of the last one
};

}  // namespace paceline::central
