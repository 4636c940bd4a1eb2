// Decorators add one feature to a communicator or its endpoint. CommConfig selects them; connect() and local_group() apply them.
#pragma once

#include <memory>

#include "paceline/comm/communicator.h"
#include "paceline/comm/endpoint.h"
#include "paceline/comm/store.h"

namespace paceline::comm {

/// Forwards every call to another communicator. Decorators override what they change, and say how they are applied to split-off groups.
class Decorator : public Communicator {
 public:
  explicit Decorator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Topology topology() const override { return inner_->topology(); }
  std::vector<int> hosts() const override { return inner_->hosts(); }
  std::string engine() const override { return inner_->engine(); }
  int name_in_run(int rank) const override { return inner_->name_in_run(rank); }
  Work start(const Operation& operation) override { return inner_->start(operation); }
  void run(const Operation& operation) override { inner_->run(operation); }
  std::int64_t bytes_sent(const Operation& operation) override { return inner_->bytes_sent(operation); }
  Memory allocate(std::int64_t bytes) override { return inner_->allocate(bytes); }

 protected:
  Communicator& inner() const { return *inner_; }
  /// Called before the decorator's own members are destroyed, if they must outlive the communicator.
  void close() { inner_.reset(); }

 private:
  std::unique_ptr<Communicator> inner_;
};

/// record: keeps the last operations with the times at which they arrived and ended. When one fails, the error says what the culprit did
/// last (ranks report to the store a few times a second), and the log shows this rank's operations and when each one started, unless the
/// culprit closed its communicator for a reason of its own.
std::unique_ptr<Communicator> record(std::unique_ptr<Communicator> inner, std::shared_ptr<Store> store);

/// check: before each collective and each split, all ranks compare what they are about to call. A mismatch is an error on every rank, and
/// no rank hangs. `algorithm` applies to operations that name none.
std::unique_ptr<Communicator> check(std::unique_ptr<Communicator> inner, std::string algorithm);

/// fault: the n-th operation of a rank fails there, as if the rank had a bug. Operations in groups that were split off count too.
std::unique_ptr<Communicator> fault(std::unique_ptr<Communicator> inner, int rank, std::int64_t operation);

/// A network to emulate: how much one host can send, and how long a message takes to arrive.
struct Link {
  double bytes_per_s = 0;  // 0: unlimited
  double latency_s = 0;
  double jitter_s = 0;  // each message is delayed by a random time up to this, and so are those queued behind it to the same rank
  std::uint64_t seed = 0;
};

/// shape: messages between hosts take as long as they would over the link. Messages within a host are not delayed.
std::unique_ptr<Endpoint> shape(std::unique_ptr<Endpoint> inner, const Link& link);

}  // namespace paceline::comm
