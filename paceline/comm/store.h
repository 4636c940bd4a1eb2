// A store of small values by key, through which ranks find one another before any engine is connected: addresses, file numbers, what a rank
// did last. Every call has a deadline; calls are thread-safe. A store of processes throws PeerError if rank 0, which serves it, is gone or
// does not answer by then.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "paceline/base/clock.h"
#include "paceline/comm/verdict.h"

namespace paceline::comm {

/// For an answer that depends on no other rank, while the ranks start and hosts may be busy.
constexpr Nanoseconds kStoreDeadline = std::chrono::seconds(30);

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value, Nanoseconds deadline = kStoreDeadline) = 0;
  virtual std::optional<std::string> get(const std::string& key, Nanoseconds deadline = kStoreDeadline) = 0;
  /// The value as soon as a rank has set it; nothing if the deadline passes first.
  virtual std::optional<std::string> wait(const std::string& key, Nanoseconds deadline) = 0;
  /// Adds to a counter that starts at 0, and returns its new value. get() returns it as text.
  virtual std::int64_t add(const std::string& key, std::int64_t amount, Nanoseconds deadline = kStoreDeadline) = 0;

  /// Starts this process's heartbeats. From now on the store detects ranks that are silent for `limit` (0: never). Called once, at the
  /// start.
  virtual void start_heartbeat(Nanoseconds /*limit*/) {}
  /// The rank that was given up because it was silent: the same on all ranks, and final. Cheap enough to be called in a loop.
  virtual std::optional<Loss> loss() const { return std::nullopt; }
  /// The culprit of a failure in which `accuser` waited for `accused` in vain; the accused may itself have been waiting for another rank.
  /// `is_gone`: nothing more will come from the accused. Takes a second or two at most.
  virtual int culprit(int accuser, int accused, bool is_gone) = 0;
  /// The last culprit that was found, for when the store can no longer be asked.
  virtual std::optional<int> cause() const { return std::nullopt; }
};

/// How long a live rank may take to say which rank it is itself waiting for: deadlines of ranks that wait for one another pass at nearly
/// the same time.
constexpr Nanoseconds kAccusationTime = std::chrono::milliseconds(700);

/// For ranks that are threads of one process.
std::shared_ptr<Store> memory_store();

}  // namespace paceline::comm
