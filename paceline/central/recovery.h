// How a server process that was lost comes back: with its last snapshot, and the events that its journal has after it (ps.replica).
//
// The snapshots of server 0 are the run's checkpoints (processes_executor.cpp); the other servers write their own (server_snapshots.h).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/central/settings.h"
#include "paceline/observe/run_folder.h"
#include "paceline/ps/concurrent_server.h"
#include "paceline/step/state.h"

namespace paceline::central {

class Recovery {
 public:
  /// All of them outlive it.
  Recovery(const Settings& settings, ps::ConcurrentServer& concurrent, const Clock& clock)
      : settings_(settings), concurrent_(concurrent), clock_(clock) {}

  bool journals() const { return journals_.has_value(); }  // they are being written
  /// In the first life of a server: begins its first journal. ConfigError where the run's folder cannot be found.
  void begin();
  /// In a later life, when the server has the state of its last snapshot: plays the journals from number `first` on, which follow it, and
  /// begins a new one. Whoever was connected is waited for where nothing was lost. `how` it comes back is logged, with `rest`, which is
  /// asked once the journals are played.
  void resume(std::int64_t first, const std::string& how, const ps::Journal::Progress& progress = {},
              const std::function<std::string()>& rest = {});

  /// Whether ps.snapshot_s have passed since the last one, and a launcher would start the server again.
  bool snapshot_due() const;
  /// Nothing has changed: the next one is due ps.snapshot_s from now.
  void try_later() { taken_at_ = clock_.now(); }
  /// Within ConcurrentServer::with(), when the server's state is in `snapshot`: a new journal follows it. If there are journals, its
  /// number, which is put into the snapshot too.
  std::optional<std::int64_t> snapshot_taken(std::vector<step::NamedTensor>& snapshot, const std::string& prefix);
  /// The number of the journal that follows a snapshot; 0 without journals. ConfigError where it is not there.
  std::int64_t journal_after(std::span<const step::NamedTensor> snapshot, const std::string& prefix) const;
  /// A snapshot that journal `number` follows is written whole.
  void forget_before(std::int64_t number) { journals_->forget_before(number); }

  /// The run's folder; nothing as long as server 0 has not created it.
  const observe::RunFolder* find_folder();
  /// Waits for it. ConfigError on timeout.
  const observe::RunFolder& await_folder();
  /// What the files of this server begin with.
  std::filesystem::path stem() const;

 private:
  const Settings& settings_;
  ps::ConcurrentServer& concurrent_;
  const Clock& clock_;
  std::optional<observe::RunFolder> folder_;
  std::optional<ps::Journals> journals_;
  Nanoseconds taken_at_ = clock_.now();
};

}  // namespace paceline::central
