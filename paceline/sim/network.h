// Links that transfers share: a fluid model in which every transfer has a speed, and speeds change when one begins or ends.
//
// A transfer needs some seconds at full speed, and then takes a share of each link that it crosses. Where the shares on a link add up to
// more than all of it, its transfers slow down, max-min fairly: all of them are given speed together until a link is full, those that cross
// it keep what they have, and the others continue (progressive filling). So w workers that send to one server get 1/w of its link each, and
// a collective that crosses many links is as fast as its fullest one allows.
#pragma once

#include <cstdint>
#include <vector>

#include "paceline/sim/event_loop.h"

namespace paceline::sim {

/// A link that a transfer crosses, and what it takes of it at full speed: 1 is all.
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

  /// A transfer begins: nothing moves for `latency`, then it needs `seconds` at full speed. `token` comes back when it has ended.
  void start(Nanoseconds latency, double seconds, std::vector<Use> uses, std::int64_t token);

  /// Shares the links again, if anything began or ended since the last call. Comes before the loop moves on.
  void settle();

  bool owns(EventLoop::Actor actor) const { return actor < by_actor_.size() && by_actor_[actor] != kNobody; }
  /// One of its events has come. The token of the transfer that has ended; -1: it only began to move.
  std::int64_t on_event(EventLoop::Actor actor);

  /// Seconds for which the link was busy, by what has ended: a transfer that takes half of it for two seconds counts one.
  double busy_s(std::size_t link) const { return links_[link].busy_s; }
  std::int64_t transfers() const { return started_; }

 private:
  static constexpr std::size_t kNobody = ~std::size_t{0};
  struct User {
    std::size_t transfer = 0, use = 0;  // which of its uses
  };
  struct Link {
    double bytes_per_s = 0;
    double load = 0;    // the shares of those that move on it
    double busy_s = 0;  // share × seconds of all that have ended
    std::vector<User> users = {};
    double room = 1, unfixed = 0;  // while speeds are worked out
    bool marked = false;
  };
  struct Transfer {
    double full_s = 0, left_s = 0;  // at full speed
    double speed = 1;
    Nanoseconds since{0};  // when left_s was right
    std::vector<Use> uses = {};
    std::vector<std::size_t> places = {};  // by use: among the link's users
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
  std::vector<std::size_t> changed_;  // links whose users must be given other speeds
  std::int64_t started_ = 0;
};

/// Whole nanoseconds, upwards: what ends has ended.
Nanoseconds nanoseconds(double seconds);

}  // namespace paceline::sim
