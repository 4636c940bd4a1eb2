// The state of a replay. replay.cpp implements the lanes, replay_exchange.cpp the communication between ranks.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "paceline/sim/server_queue.h"

namespace paceline::sim {

inline constexpr std::size_t kLanes = 5;
/// Whether actions on a lane take cycles and memory bandwidth from the compute lane.
constexpr bool disturbs(std::size_t lane) {
  return lane == static_cast<std::size_t>(schedule::Action::Lane::exchange) ||
         lane == static_cast<std::size_t>(schedule::Action::Lane::gather);
}
static_assert(static_cast<int>(schedule::Action::Lane::compute) == 0 && static_cast<int>(schedule::Action::Lane::receive) + 1 == kLanes);

/// What all ranks of a stage share.
struct Stage {
  const schedule::Program* program = nullptr;
  std::array<std::vector<int>, kLanes> lanes = {};  // indices of actions
  std::vector<double> seconds = {};                 // of compute actions
  std::vector<int> matches = {};                    // of collectives: identifies one among those of its axis
  double compute_s = 0;                             // of a step
  int first_pull = -1, last_push = -1;              // actions
};

/// One rank in the middle of a step.
struct RankState {
  struct Lane {
    std::size_t head = 0;  // the action that runs, or comes next
    bool busy = false;
    Nanoseconds begun{0};
  };
  std::array<Lane, kLanes> lanes;
  std::vector<bool> done;
  std::size_t left = 0;      // actions
  std::int64_t step = 0;     // its number, from 0
  std::int64_t attempt = 0;  // counts the abandoned ones too
  double pace = 1;           // slow-down factor of computing, drawn for each step
  double network = 1;        // the same for messages
  int computing = 0, moving = 0;
  int disturbing = 0;  // actions in flight on other lanes, which slow the compute lane down
  bool over = false;
  const Stage* stage = nullptr;  // what it executes in this step
  Nanoseconds since{0}, step_begun{0};
  Spent spent;
};

/// A transfer in flight: a collective of a group, a message, or a part of a pull or push.
struct Move {
  enum class Kind : std::uint8_t { collective, message, pull, push } kind = Kind::collective;
  struct Side {
    int rank = 0, lane = 0, action = 0;
    std::int64_t attempt = 0;
  };
  std::vector<Side> sides;  // collective: all ranks; otherwise the rank whose action it is
  int to = 0, tag = 0;      // message
  int parts = 1;            // transfers that are not done
};

class Replay {
 public:
  Replay(const Job& job, const perf::ComputeTimes& times, CollectiveModel collectives);
  Replayed run();

 private:
  // replay.cpp: the lanes of a rank.
  std::vector<Stage> prepared(const std::vector<schedule::Program>& programs) const;
  void prepare_servers();
  void begin_step(int rank);
  void resume(int rank);
  bool begin(int rank, std::size_t lane, int action);  // true: it is done immediately
  void complete(const Move::Side& side);
  void end_action(int rank, std::size_t lane, Nanoseconds begun);
  void end_step(int rank);
  void on_lane(EventLoop::Actor actor);
  void account(int rank);
  void disturb(int rank, int change);
  double speed(const RankState& rank) const;
  void tell(int rank, std::size_t lane, int action, Nanoseconds begun) const;
  void tell_wait(const Move::Side& side);
  [[noreturn]] void refuse_deadlock() const;
  Replayed result() const;

  // replay_exchange.cpp: communication between ranks.
  void move_on(const Move::Side& side, int change);
  int peer_of(const Move::Side& side) const;
  bool begin_collective(const Move::Side& side);
  bool begin_send(const Move::Side& side);
  bool begin_receive(const Move::Side& side);
  bool begin_pull(const Move::Side& side);
  void start_visit(const Move::Side& side, Move::Kind kind);
  void on_network(EventLoop::Actor actor);
  void on_servers();
  void start_over(int rank);
  std::size_t add(Move move);
  bool is_current(const Move::Side& side) const { return state(side.rank).attempt == side.attempt; }
  std::vector<LinkUse> links() const;
  double server_part_s(const schedule::Action& push, bool update) const;

  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const RankState& state(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  const Stage& stage_of(int rank) const { return *state(rank).stage; }
  const schedule::Action& action_of(const Move::Side& side) const {
    return (*stage_of(side.rank).program)[static_cast<std::size_t>(side.action)];
  }
  EventLoop::Actor lane_actor(int rank, std::size_t lane) const { return static_cast<std::size_t>(rank) * kLanes + lane; }

  const Job& job_;
  const perf::ComputeTimes& times_;
  EventLoop loop_;
  ClusterMap layout_;
  Network network_;
  Collectives collectives_;
  std::unique_ptr<ps::Timing> timing_;
  double timed_s_ = 0;  // the mean of the drawn durations, which become factors relative to it
  double slowdown_;
  std::vector<Stage> stages_, between_, opening_;  // by rank of the pipeline: with a meeting, without one, at the beginning of a period
  std::vector<RankState> ranks_;
  std::optional<ServerQueue> servers_;

  struct PendingCollective {
    std::vector<Move::Side> sides;
    std::vector<double> arrivals;
  };
  std::unordered_map<std::uint64_t, PendingCollective> pending_;  // those that some ranks have not reached yet
  struct Channel {
    int arrived = 0;
    std::deque<Move::Side> waiting;
  };
  std::map<std::tuple<int, int, int>, Channel> channels_;  // messages by sender, receiver and tag
  std::vector<Move> moves_;
  std::vector<std::size_t> free_;

  std::vector<Nanoseconds> step_ends_;  // by step: of the last rank
  std::vector<double> own_steps_;       // seconds of each rank's steps, if they are not synchronous
  std::int64_t finished_ = 0, wanted_ = 0, events_ = 0;
};

}  // namespace paceline::sim
