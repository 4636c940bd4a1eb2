// Decorators: a communicator (or its endpoint) with something more around it. CommConfig says which; connect() and local_group() put them
// on.
#pragma once

#include <memory>

#include "paceline/comm/communicator.h"
#include "paceline/comm/endpoint.h"
#include "paceline/comm/store.h"

namespace paceline::comm {

/// Hands everything on to another communicator. Decorators override what they change, and say what becomes of them in a group.
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
  Memory allocate(std::int64_t bytes) override { return inner_->allocate(bytes); }

 protected:
  Communicator& inner() const { return *inner_; }
  /// Before the decorator's own members go, where they must outlive it.
  void close() { inner_.reset(); }

 private:
  std::unique_ptr<Communicator> inner_;
};

/// record: keeps the last operations with the times of their arrival and end. When one fails, the error says what the culprit did last
/// (ranks tell the store a few times a second), and the log shows what this rank did and when it came to it, unless the culprit closed its
/// communicator for a reason of its own.
std::unique_ptr<Communicator> record(std::unique_ptr<Communicator> inner, std::shared_ptr<Store> store);

/// check: before each collective, and before a split, all ranks compare what they are about to call; a mismatch is named on every rank,
/// and nobody hangs. `algorithm`: of operations that name none.
std::unique_ptr<Communicator> check(std::unique_ptr<Communicator> inner, std::string algorithm);

/// fault: the n-th operation of a rank fails there, as if the rank had a bug. What it does in groups that were split off counts too.
std::unique_ptr<Communicator> fault(std::unique_ptr<Communicator> inner, int rank, std::int64_t operation);

/// A network to play: what one host can send, and how long a message takes to arrive.
struct Link {
  double bytes_per_s = 0;  // 0: as fast as it goes
  double latency_s = 0;
  double jitter_s = 0;  // each message takes up to so much longer, by chance, and so do those to the same rank behind it
  std::uint64_t seed = 0;
};

/// shape: messages between hosts take as long as they would over the link. Messages within a host are not touched.
std::unique_ptr<Endpoint> shape(std::unique_ptr<Endpoint> inner, const Link& link);

}  // namespace paceline::comm
