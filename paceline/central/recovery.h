// How a server process that was lost comes back: with its last snapshot, and the events that its journal has after it (ps.replica).
//
// The snapshots of server 0 are the run's checkpoints (processes_executor.cpp); the other servers write their own (server_snapshots.h).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/central/settings.h"
#include "paceline/ps/concurrent_server.h"
#include "paceline/step/state.h"

namespace paceline::central {

class Recovery {
 public:
  /// All of them outlive it. ConfigError where journals are wanted of a run that no launcher started.
  Recovery(const Settings& settings, ps::ConcurrentServer& concurrent, const Clock& clock);
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  bool journals() const { return journals_ != nullptr; }
  /// In the first life of a server, before anybody is served: begins its first journal, of this number, which follows the state that the
  /// server has now. It is written once the run's folder is there.
  void begin(std::int64_t first = 0);
  /// The same if that state is a checkpoint's: whoever was in its rounds is waited for.
  void begin_with_checkpoint(std::int64_t first);
  /// In a later life, when the server has the state of its last snapshot: plays the journals from number `first` on, which follow it, and
  /// begins a new one. Whoever was connected is waited for where nothing was lost. `how` it comes back is logged, with `rest`, which is
  /// asked once the journals are played. The run's folder is there.
  void resume(std::int64_t first, const std::string& how, const ps::Journal::Progress& progress = {},
              const std::function<std::string()>& rest = {});

  /// Whether ps.snapshot_s have passed since the last one, and a launcher would start the server again.
  bool snapshot_due() const;
  /// Nothing has changed: the next one is due ps.snapshot_s from now.
  void try_later() { taken_at_ = clock_.now(); }
  /// Within ConcurrentServer::with(), when the server's state is in `snapshot`: a new journal follows it. If there are journals, its
  /// number, which is put into the snapshot too.
  std::optional<std::int64_t> snapshot_taken(std::vector<step::NamedTensor>& snapshot, const std::string& prefix);
  /// The number of the journal that follows a snapshot; 0 if there is none.
  std::int64_t journal_after(std::span<const step::NamedTensor> snapshot, const std::string& prefix) const;
  /// A snapshot that journal `number` follows is written whole.
  void forget_before(std::int64_t number) { journals_->forget_before(number); }

  /// What the files of this server begin with, in the run's folder; nothing as long as server 0 has not created that.
  std::optional<std::filesystem::path> find_stem() const;
  /// Waits for it. ConfigError on timeout.
  std::filesystem::path await_stem() const;
  /// Whether a launcher would start this server again, from a snapshot.
  bool restartable() const;

 private:
  const Settings& settings_;
  ps::ConcurrentServer& concurrent_;
  const Clock& clock_;
  std::unique_ptr<ps::Journals> journals_;  // null unless ps.replica
  Nanoseconds taken_at_ = clock_.now();
};

}  // namespace paceline::central
