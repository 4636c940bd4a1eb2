// What happened to a server since its last snapshot, event by event; each is written before it is acknowledged (ps.replica=true).
//
// A server is a deterministic state machine, so a snapshot and the events after it restore it bit by bit: nothing that was acknowledged is
// lost with its process. What the operating system has not yet written to disk is lost with its host.
//
// A journal begins at a snapshot. A restarted server continues with a new journal, so that several may follow one snapshot. Each records
// how many events the previous one has. If that has fewer, it was truncated while its server kept running (the disk was full); later events
// belong to a state that is lost, and are refused. A last event that was truncated with its process was never acknowledged: it is ignored,
// and the next journal does not count it.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>

#include "paceline/ps/server.h"

namespace paceline::ps {

/// A minibatch that is complete on all servers, and its sums.
struct Completed {
  std::int64_t number = 0;
  double loss = 0, right = 0;
  std::int64_t targets = 0;
};
/// As it is written to a journal: every event has room for a report.
Report as_report(const Completed& minibatch);

class Journal {
 public:
  enum class Kind : std::int64_t {
    joined,
    left,
    all_away,
    returned,
    granted,
    pulled,
    reported,
    pushed,
    refused,
    follows,
    resumed,    // a worker pushes what it computed across a reconnect
    duplicate,  // a worker pushed a minibatch that had been handled
    assigned,   // server 0: a minibatch was assigned to the worker
    completed,  // server 0: a minibatch is complete on all servers
    interrupted,
    lost,  // a worker's connection broke; it keeps its place
  };
  /// Called during a replay for `assigned`, where only the number of `minibatch` is set, and `completed`.
  using Progress = std::function<void(Kind kind, int worker, const Completed& minibatch)>;

  /// Where to write; empty until that is known: events wait in memory meanwhile.
  using Place = std::function<std::optional<std::filesystem::path>()>;

  /// `before`: the number of events in the journal that it follows.
  explicit Journal(Place place, std::int64_t before = 0);
  explicit Journal(const std::filesystem::path& file, std::int64_t before = 0) : Journal([file] { return std::optional(file); }, before) {}

  /// Must not end a run when the disk is full: a warning is logged, and nothing more is written until the next snapshot.
  void note(Kind kind, std::int64_t worker, const Push& push = {}, const Report& report = {}, std::span<const float> values = {});

  /// The number so far, including events that could not be written.
  std::shared_ptr<const std::int64_t> events() const { return events_; }

  struct Replayed {
    bool begun = false;  // it has a complete header
    std::int64_t events = 0, pushes = 0;
  };
  /// Replays the events of a file on `server`, up to one that was not completely written. DataError if it is not a journal, has another
  /// format, or follows one that did not have `before` events.
  static Replayed replay(const std::filesystem::path& file, Server& server, std::optional<std::int64_t> before = {},
                         const Progress& progress = {});

 private:
  bool open();  // false: the location is not known yet
  void give_up();

  Place place_;
  std::ofstream file_;
  std::string waiting_;   // until it is open
  bool gave_up_ = false;  // the disk is full, or the location was not found out in time
  std::shared_ptr<std::int64_t> events_ = std::make_shared<std::int64_t>(0);
};

/// The journals of one server, numbered.
class Journals {
 public:
  /// Files are "<stem>.journal-<number>"; the stem may become known later.
  explicit Journals(Journal::Place stem) : stem_(std::move(stem)) {}
  explicit Journals(const std::filesystem::path& stem) : Journals([stem] { return std::optional(stem); }) {}

  std::int64_t number() const { return number_; }  // of the last one
  void begin_with(std::int64_t number) { number_ = number - 1; }
  std::unique_ptr<Journal> next();
  /// Replays all from number `from` on; returns the number of pushes.
  std::int64_t replay(Server& server, std::int64_t from, const Journal::Progress& progress = {});
  /// There is now a snapshot that number `from` continues: earlier journals are no longer needed.
  void forget_before(std::int64_t from);

 private:
  std::filesystem::path file(std::int64_t number) const;

  Journal::Place stem_;
  std::int64_t number_ = -1;
  std::shared_ptr<const std::int64_t> events_ = std::make_shared<std::int64_t>(0);  // of the last one
};

}  // namespace paceline::ps
