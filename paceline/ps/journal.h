// What happened to a server since its last snapshot, event by event, written down before it is acknowledged (ps.replica=true).
//
// A server is a state machine whose bits follow from the order of events, so that a snapshot and the events after it are the server again:
// nothing that was acknowledged is lost with its process. What the operating system has not yet put on disk is lost with its host.
//
// A journal begins with a snapshot. Where a server is started again it goes on with a new one, so that several may follow one snapshot.
// Each says how many events the one before it has. One that has fewer was cut while its server lived on (the disk was full); what follows
// it happened to a state that nobody has any more, and is refused. A last event that was cut with its process was never acknowledged: it is
// left out, and the next journal counts without it.
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
/// As a journal writes it down: every event has room for a report.
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
    duplicate,  // a worker pushed a minibatch that was handled before
    assigned,   // server 0: a minibatch was assigned to the worker
    completed,  // server 0: a minibatch is complete on all servers
    interrupted,
    lost,  // a worker's connection broke, and it keeps its place
  };
  /// Called during a replay for `assigned`, where `minibatch` has but its number, and `completed`.
  using Progress = std::function<void(Kind kind, int worker, const Completed& minibatch)>;

  /// `before`: the events of the journal that it follows.
  explicit Journal(const std::filesystem::path& file, std::int64_t before = 0);

  /// A disk that is full must not end a run: then nothing more is written before the next snapshot, with an alarm.
  void note(Kind kind, std::int64_t worker, const Push& push = {}, const Report& report = {}, std::span<const float> values = {});

  /// So far, whether or not the disk took them.
  std::shared_ptr<const std::int64_t> events() const { return events_; }

  struct Replayed {
    bool begun = false;  // it has a beginning
    std::int64_t events = 0, pushes = 0;
  };
  /// Plays the events of a file on `server`, up to one that was not written to its end. DataError where it is no journal, has another
  /// format, or follows one that had not `before` events.
  static Replayed replay(const std::filesystem::path& file, Server& server, std::optional<std::int64_t> before = {},
                         const Progress& progress = {});

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  std::shared_ptr<std::int64_t> events_ = std::make_shared<std::int64_t>(0);
};

/// The journals of one server, numbered.
class Journals {
 public:
  /// Files are "<stem>.journal-<number>".
  explicit Journals(std::filesystem::path stem) : stem_(std::move(stem)) {}

  std::int64_t number() const { return number_; }  // of the last one
  std::unique_ptr<Journal> next();
  /// Plays all from number `from` on; their pushes.
  std::int64_t replay(Server& server, std::int64_t from, const Journal::Progress& progress = {});
  /// There is a snapshot that begins with number `from`.
  void forget_before(std::int64_t from);

 private:
  std::filesystem::path file(std::int64_t number) const;

  std::filesystem::path stem_;
  std::int64_t number_ = -1;
  std::shared_ptr<const std::int64_t> events_ = std::make_shared<std::int64_t>(0);  // of the last one
};

}  // namespace paceline::ps
