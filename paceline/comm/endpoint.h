// What an engine provides for a group of ranks: a way to send messages, a way to wait, and the memory that the ranks of a host share, if
// they do. Everything else (schedules, the choice among them, asynchrony, deadlines) is written once, over this (rank_communicator.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"
#include "paceline/comm/shared/group.h"
#include "paceline/comm/transport.h"

namespace paceline::comm {

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual std::string engine() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The host of each rank. The numbers themselves mean nothing, except that ranks of one host have the same.
  virtual const std::vector<int>& hosts() const = 0;
  Topology topology() const { return topology_of(hosts()); }
  virtual Transport& transport() = 0;
  virtual Waiter& waiter() = 0;
  /// The ranks of this host that share memory, in rank order; null if they share none.
  virtual shared::Group* host_group() = 0;
  /// The endpoint of a group of `members` (ranks of this one, this rank among them). Collective among the members; `via` is the
  /// communicator over this endpoint, through which they agree on what they need.
  virtual std::unique_ptr<Endpoint> split(const std::vector<int>& members, Communicator& via) = 0;
  virtual Memory allocate(std::int64_t bytes) = 0;
};

}  // namespace paceline::comm
