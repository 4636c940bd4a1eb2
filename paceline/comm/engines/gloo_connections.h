// A process's connections to the ranks of other hosts, and which of those are gone or gave up.
//
// Every rank is connected to all ranks of other hosts. A broken connection means that a rank is gone. A rank that is alive but gave up on a
// group sends a final message.
#pragma once

#include <list>
#include <map>

#include "paceline/comm/engines/gloo_tickets.h"
#include "paceline/comm/engines/two_level.h"

namespace paceline::comm::over_gloo {

/// Sent by a rank that gave up on a group because of a rank of the run.
struct LastWords {
  std::uint64_t group;
  std::int64_t culprit;
};

/// Shared by the communicators that were split from one another.
class Connections {
 public:
  Connections(const World& world, const Places& places, const std::string& address, const shared::Exchange& exchange);

  Context& context() { return *context_; }
  Watchers& watchers() { return watchers_; }
  int rank() const { return context_->rank; }
  std::int64_t next_group() { return ++groups_; }
  /// Returns when everything that it sent has arrived.
  bool is_broken(int peer);
  /// Called after a message announced it: the threads need a moment to notice.
  void await_break(int peer);

  /// Sent to all of `peers` to which this rank is connected.
  void say(const LastWords& words, const std::vector<int>& peers);
  /// −1 if the peer has said nothing about this group.
  int culprit_of(int peer, std::uint64_t group);

 private:
  struct Words {
    LastWords words;
    std::unique_ptr<Ticket> ticket;
  };

  void connect(int peer, const std::vector<char>& address);
  std::unique_ptr<Ticket> ticket_for(Words& words, bool sends);
  void listen_to(int peer);
  void hear(int peer);

  std::shared_ptr<Context> context_;
  Watchers watchers_;
  /// By peer. Gloo reports a broken connection to only some of the operations on it; a receive that is never answered is always among them.
  std::map<int, std::unique_ptr<Ticket>> silent_;
  std::atomic<std::int64_t> groups_ = 0;  // groups that this rank has led

  std::mutex mutex_;                                       // guards what follows
  std::list<Words> said_;                                  // sent, and perhaps still in flight
  std::map<int, Words> heard_;                             // received, by peer: the next message; without a ticket: none
  std::map<std::pair<int, std::uint64_t>, int> culprits_;  // by peer and group
};

}  // namespace paceline::comm::over_gloo
