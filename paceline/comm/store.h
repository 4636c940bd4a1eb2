// A store of small values by key, through which ranks find one another before any engine stands: addresses, file numbers, what a rank did
// last. Every call has a deadline; any thread may call. A store of processes throws PeerError where rank 0, which serves it, is gone or
// does not answer by then.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "paceline/base/clock.h"

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
};

/// For ranks that are threads of one process.
std::shared_ptr<Store> memory_store();

}  // namespace paceline::comm
