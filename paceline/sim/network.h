// Links that transfers share: a fluid model in which every transfer has a speed, and speeds change when one begins or ends.
//
// A transfer needs some seconds at full speed, and then takes a share of each link that it crosses. If the shares on a link add up to more
// than its capacity, its transfers slow down, max-min fairly: the speeds of all transfers grow together until a link is full, those that
// cross it keep their speed, and the others continue to grow (progressive filling). So w workers that send to one server get 1/w of its
// link each, and a collective that crosses many links is limited by the most contended one.
#pragma once

#include <cstdint>
#include <vector>

#include "paceline/base/event_loop.h"

namespace paceline::sim {

/// A link that a transfer crosses, and the share of it that the transfer takes at full speed (1: all of it).
struct Use {
  std::size_t link = 0;
  double share = 1;
};

class Network {
 public:
  explicit Network(EventLoop& loop) : loop_(loop) {}

  /// Numbered from 0 as they are added.
  std::size_t add_link(double bytes_per_s);
  std::size_t links() const { return links_.size(); }
  double capacity(std::size_t link) const { return links_[link].bytes_per_s; }

  /// Starts a transfer: nothing moves for `latency`, then it needs `seconds` at full speed. `token` is returned when it has ended.
  void start(Nanoseconds latency, double seconds, std::vector<Use> uses, std::int64_t token);

  /// Recomputes the shares if a transfer began or ended since the last call. Call it before the loop advances.
  void settle();

  bool owns(EventLoop::Actor actor) const { return actor < by_actor_.size() && by_actor_[actor] != kNobody; }
  /// Handles one of its events. Returns the token of the transfer that has ended; -1: it only started to move.
  std::int64_t on_event(EventLoop::Actor actor);

  /// For how many seconds the link was busy, by transfers that have ended: one that takes half of it for two seconds counts as one second.
  double busy_s(std::size_t link) const { return links_[link].busy_s; }
  std::int64_t transfers() const { return started_; }

 private:
  static constexpr std::size_t kNobody = ~std::size_t{0};
  struct User {
    std::size_t transfer = 0, use = 0;  // which of its uses
  };
  struct Link {
    double bytes_per_s = 0;
    double load = 0;    // sum of the shares of the active transfers
    double busy_s = 0;  // share × seconds of all that have ended
    std::vector<User> users = {};
    double room = 1, unfixed = 0;  // scratch while speeds are computed
    bool marked = false;
  };
  struct Transfer {
    double full_s = 0, left_s = 0;  // at full speed
    double speed = 1;
    Nanoseconds since{0};  // when left_s was up to date
    std::vector<Use> uses = {};
    std::vector<std::size_t> places = {};  // by use: the index among the users of its link
    std::int64_t token = 0;
    EventLoop::Actor actor = 0;
    bool moves = false, marked = false, fixed = false;
  };

  void begin(Transfer& transfer, std::size_t index);
  void end(std::size_t index);
  void mark(std::size_t link);
  void set_speed(Transfer& transfer, double speed);

  EventLoop& loop_;
  std::vector<Link> links_;
  std::vector<Transfer> transfers_;
  std::vector<std::size_t> free_, by_actor_;
  std::vector<std::size_t> changed_;  // links whose users need new speeds
  std::int64_t started_ = 0;
};

/// Rounds up to whole nanoseconds, so that a transfer is never ended early.
Nanoseconds nanoseconds(double seconds);

}  // namespace paceline::sim
