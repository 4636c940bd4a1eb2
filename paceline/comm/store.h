// A store of small values by key, through which ranks find one another before any engine stands: addresses, file numbers, what a rank did
// last. Every call has a deadline; any thread may call. A store of processes throws PeerError where rank 0, which serves it, is gone or
// does not answer by then.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "paceline/base/clock.h"
#include "paceline/comm/verdict.h"

namespace paceline::comm {

/// For an answer that waits for nobody, while the ranks start and hosts may be busy.
constexpr Nanoseconds kStoreDeadline = std::chrono::seconds(30);

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value, Nanoseconds deadline = kStoreDeadline) = 0;
  virtual std::optional<std::string> get(const std::string& key, Nanoseconds deadline = kStoreDeadline) = 0;
  /// The value as soon as somebody set it; nothing once the deadline passed.
  virtual std::optional<std::string> wait(const std::string& key, Nanoseconds deadline) = 0;
  /// Adds to a counter that begins at 0, and returns what it is then. get() shows it as text.
  virtual std::int64_t add(const std::string& key, std::int64_t amount, Nanoseconds deadline = kStoreDeadline) = 0;

  /// From here on this process tells the others that it lives, and hears who was silent for `limit` (0: for ever). Once, at the start.
  virtual void start_heartbeat(Nanoseconds /*limit*/) {}
  /// The rank that was given up because it was silent: the same for all, for good. Cheap enough to be asked in a loop.
  virtual std::optional<Loss> loss() const { return std::nullopt; }
  /// The culprit of a failure, where `accuser` waited for `accused` in vain; that one may only have waited itself, for somebody who did.
  /// `is_gone`: the accused says no more. Takes a second or two at most.
  virtual int culprit(int accuser, int accused, bool is_gone) = 0;
  /// The last culprit that was found, where the store cannot be asked any more.
  virtual std::optional<int> cause() const { return std::nullopt; }
};

/// How long a rank that lives may take to say whom it waits for itself: deadlines of ranks that wait for one another pass at nearly the
/// same time.
constexpr Nanoseconds kAccusationTime = std::chrono::milliseconds(700);

/// For ranks that are threads of one process.
std::shared_ptr<Store> memory_store();

}  // namespace paceline::comm
