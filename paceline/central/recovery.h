// How a server process that was lost comes back: from its last snapshot, and from the events in its journal after that (ps.replica).
//
// Server 0's snapshots are the run's checkpoints (processes_executor.cpp); the other servers write their own (server_snapshots.h).
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

/// Where a server keeps its snapshot and its journals: in the run's folder, which server 0 creates.
class ServerFiles {
 public:
  /// Both outlive it.
  ServerFiles(const Settings& settings, const Clock& clock) : settings_(settings), clock_(clock) {}

  /// What the names of this server's files begin with; nothing until the run's folder exists.
  std::optional<std::filesystem::path> find_stem() const;
  /// Waits for it. ConfigError on timeout.
  std::filesystem::path await_stem() const;
  /// Whether a launcher would restart this server from a snapshot.
  bool restartable() const;

 private:
  const Settings& settings_;
  const Clock& clock_;
};

/// The state that a server has when it begins to serve, or to serve again.
struct Beginning {
  enum class State {
    fresh,       // the recipe's
    checkpoint,  // a checkpoint's; workers that were in its rounds are waited for
    restarted,   // that of its last snapshot; its journals follow
  };
  State state = State::fresh;
  std::int64_t journal = 0;                // the number of the first journal after that state
  std::string how = {};                    // restarted: from what, for the log
  ps::Journal::Progress progress = {};     // restarted: called while its journals are replayed
  std::function<std::string()> rest = {};  // restarted: for the log, called when they have been
};

/// The journals of a server, from its beginning on.
class Recovery {
 public:
  /// Before anybody is served. Replays the journals of a restarted server, for which the run's folder must exist; nothing is lost then, and
  /// workers that were connected are waited for. References outlive it. ConfigError if the recipe asks for journals, but no launcher
  /// started the run.
  Recovery(const Settings& settings, ps::ConcurrentServer& concurrent, const Clock& clock, const Beginning& from);
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  bool journals() const { return journals_ != nullptr; }
  const ServerFiles& files() const { return files_; }

  /// Whether ps.snapshot_s have passed since the last snapshot of a run that a launcher started.
  bool snapshot_due() const;
  /// The next one is due ps.snapshot_s from now, since nothing has changed.
  void postpone_snapshot() { taken_at_ = clock_.now(); }
  /// Within ConcurrentServer::with(), while `snapshot` is the server's state: starts the journal that follows it. Returns its number, which
  /// it also adds to the snapshot; nothing if there are no journals.
  std::optional<std::int64_t> snapshot_taken(std::vector<step::NamedTensor>& snapshot, const std::string& prefix);
  /// A snapshot that journal `number` follows is complete on disk: earlier journals are removed.
  void forget_before(std::int64_t number) { journals_->forget_before(number); }
  /// The last snapshot is a complete checkpoint. The one before it keeps its journals too, for a run that finds the last one damaged.
  void checkpoint_complete();

 private:
  void replay(const Beginning& from);

  const Settings& settings_;
  ps::ConcurrentServer& concurrent_;
  const Clock& clock_;
  ServerFiles files_;
  std::unique_ptr<ps::Journals> journals_;  // null without ps.replica
  std::int64_t last_, before_;              // the first journals after the last snapshot and the complete checkpoint before it
  Nanoseconds taken_at_ = clock_.now();
};

/// The number of the journal that follows a snapshot; 0 if there is none.
std::int64_t journal_after(const Settings& settings, std::span<const step::NamedTensor> snapshot, const std::string& prefix);

}  // namespace paceline::central
