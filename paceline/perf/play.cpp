#include "paceline/perf/play.h"

#include <algorithm>
#include <array>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::perf {
namespace {

using schedule::Action;

constexpr std::size_t kLanes = 5;

bool is_message(const Action& action, Action::Exchange exchange) {
  return action.kind == Action::Kind::communicate && action.exchange == exchange;
}

/// Whether the action takes cycles and memory bandwidth from the compute lane.
bool disturbs(const Action& action) { return action.lane == Action::Lane::exchange || action.lane == Action::Lane::gather; }
bool is_disturbed(const Action& action) { return action.lane == Action::Lane::compute && action.kind == Action::Kind::compute; }

/// A collective of the stages, which begins once all of them are there.
bool meets_stages(const Action& action) {
  return action.kind == Action::Kind::communicate && action.axis == Action::Axis::pipeline && action.exchange <= Action::Exchange::barrier;
}

class Player {
 public:
  Player(std::span<const schedule::Program> stages, std::span<const double> durations, const PlayOptions& options)
      : durations_(durations), slowdown_(options.slowdown), turns_(options.turns), stages_(stages.size()) {
    actions_.reserve(durations.size());
    for (const schedule::Program& program : stages) {
      made_.first.push_back(static_cast<int>(actions_.size()));
      for (const Action& action : program) actions_.push_back(&action);
    }
    made_.first.push_back(static_cast<int>(actions_.size()));
    made_.actions.resize(actions_.size());
    pending_.resize(actions_.size(), 0);
    version_.resize(actions_.size(), 0);
    joint_of_.resize(actions_.size(), -1);
    joined_.resize(stages.size(), 0);
    next_on_lane_.resize(actions_.size(), -1);
    first_edge_.resize(actions_.size(), -1);
    receives_.resize(actions_.size(), 0);
    for (std::size_t stage = 0; stage < stages.size(); ++stage) link_stage(static_cast<int>(stage));
    pair_messages();
  }

  Play run() && {
    std::vector<int> first;  // collected before any begins, since beginning one changes what others wait for
    for (int action = 0; action < std::ssize(actions_); ++action)
      if (pending_[at(action)] == 0) first.push_back(action);
    for (const int action : first) ready(action, 0, -1);
    std::size_t ended = 0;
    while (soonest_ || !events_.empty()) {
      const Event event = take_event();
      if (event.version != version_[at(event.action)]) continue;
      end(event.action, event.time);
      ++ended;
    }
    if (ended + ran_ahead_ < actions_.size()) refuse();
    return std::move(made_);
  }

 private:
  struct Event {
    double time;
    int action, version;
    bool operator<(const Event& other) const { return std::tie(time, action) > std::tie(other.time, other.action); }  // earliest on top
  };
  /// An action that depends on one of another lane or stage, and the next such edge of the same action.
  struct Edge {
    int to, next;
  };
  /// What one stage currently does.
  struct Stage {
    int disturbing = 0;  // actions on other lanes that slow the compute lane down
    int computing = -1;  // the action on the compute lane
    double left = 0;     // the remainder of it, in seconds of an undisturbed device
    double since = 0;    // when `left` was computed
  };

  /// A collective that is in the programs of all stages.
  struct JointCollective {
    std::vector<int> members;
    int ready = 0;
  };

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  void link_stage(int stage) {
    std::array<int, kLanes> last;
    last.fill(-1);
    const int first = made_.first[at(stage)];
    for (int i = first; i < made_.first[at(stage) + 1]; ++i) {
      const Action& action = *actions_[at(i)];
      for (const int before : action.after) link(first + before, i);
      int& previous = last[static_cast<std::size_t>(action.lane)];
      if (previous >= 0) next_on_lane_[at(previous)] = i, ++pending_[at(i)];
      previous = i;
      if (meets_stages(action)) join(i, stage);
      receives_[at(i)] = is_message(action, Action::Exchange::receive);
      if (receives_[at(i)] || is_message(action, Action::Exchange::send)) messages_.push_back({i, stage});
    }
  }

  /// Collectives of the stages are matched in their order.
  void join(int action, int stage) {
    const std::size_t number = at(joined_[at(stage)]++);
    if (joint_.size() <= number) joint_.resize(number + 1);
    joint_[number].members.push_back(action);
    joint_of_[at(action)] = static_cast<int>(number);
  }

  /// Sends and receives of two ranks are matched by tag, in their order. Along axes other than the pipeline, all ranks run the same
  /// program.
  void pair_messages() {
    using Key = std::tuple<int, int, Action::Axis, int>;  // sender, receiver, axis, tag
    std::map<Key, std::pair<std::vector<int>, std::vector<int>>> pairs;
    for (const auto& [i, stage] : messages_) {
      const Action& action = *actions_[at(i)];
      const bool sends = action.exchange == Action::Exchange::send;
      const int peer = action.axis == Action::Axis::pipeline ? action.peer : stage;
      auto& [sent, received] = pairs[Key{sends ? stage : peer, sends ? peer : stage, action.axis, action.tag}];
      (sends ? sent : received).push_back(i);
    }
    for (const auto& [key, both] : pairs) {
      const auto& [sent, received] = both;
      for (std::size_t i = 0; i < received.size(); ++i)
        if (i < sent.size()) link(sent[i], received[i]);
        else ++pending_[at(received[i])];  // never there
    }
  }

  void link(int from, int to) {
    edges_.push_back({to, first_edge_[at(from)]});
    first_edge_[at(from)] = static_cast<int>(edges_.size()) - 1;
    ++pending_[at(to)];
  }

  /// A receive takes as long as its send.
  double seconds_of(int action) const { return receives_[at(action)] ? 0 : durations_[at(action)]; }
  bool rates_matter() const { return slowdown_ > 1 || turns_; }

  /// The stages whose ranks compute on the same devices.
  std::span<Stage> together(int stage) {
    if (!turns_) return {&stages_[at(stage)], 1};
    const int first = stage - stage % turns_->stages;
    return std::span(stages_).subspan(at(first), std::min(at(turns_->stages), stages_.size() - at(first)));
  }
  /// The share of a device's speed at which a rank of the stage currently computes.
  double rate(const Stage& stage, std::span<const Stage> others) const {
    double rate = stage.disturbing > 0 ? 1 / slowdown_ : 1;
    if (!turns_) return rate;
    const auto computing = static_cast<double>(std::ranges::count_if(others, [](const Stage& other) { return other.computing >= 0; }));
    return rate * std::min(1.0, turns_->devices / std::max(1.0, computing * turns_->stage_ranks));
  }

  /// The sooner of two events is kept outside of the queue: usually it is the next one, and the queue need not be reordered for it.
  void schedule_end(int action, double time) {
    Event event{time, action, ++version_[at(action)]};
    if (soonest_ && event < *soonest_) return events_.push(event);  // later
    if (soonest_) events_.push(*soonest_);
    soonest_ = event;
  }
  Event take_event() {
    if (soonest_ && (events_.empty() || events_.top() < *soonest_)) return *std::exchange(soonest_, std::nullopt);
    const Event event = events_.top();
    events_.pop();
    return event;
  }

  /// Changes what a stage does. The work that it and its neighbours have done so far counts at the old rates, and the end of their current
  /// work moves.
  template <class Change>
  void change(int index, double now, const Change& make) {
    const std::span<Stage> group = together(index);
    for (Stage& stage : group)
      if (stage.computing >= 0) stage.left = std::max(0.0, stage.left - (now - stage.since) * rate(stage, group)), stage.since = now;
    make(stages_[at(index)]);
    for (Stage& stage : group)
      if (stage.computing >= 0) schedule_end(stage.computing, now + stage.left / rate(stage, group));
  }

  void ready(int action, double now, int because) {
    if (joint_of_[at(action)] < 0) return begin(action, now, because);
    JointCollective& joint = joint_[at(joint_of_[at(action)])];
    if (++joint.ready < std::ssize(stages_)) return;
    for (const int member : joint.members) begin(member, now, because);
  }

  void begin(int action, double now, int because) {
    PlayedAction& played = made_.actions[at(action)];
    played.begin = now, played.because = because;
    if (!rates_matter()) return run_ahead(action, now);
    const double seconds = seconds_of(action);
    if (seconds > 0) {
      const int stage = made_.stage_of(action);
      if (disturbs(*actions_[at(action)])) change(stage, now, [](Stage& of) { ++of.disturbing; });
      if (is_disturbed(*actions_[at(action)]))
        return change(stage, now, [&](Stage& of) { of.computing = action, of.left = seconds, of.since = now; });
    }
    schedule_end(action, now + seconds);
  }

  /// An action needs no event if only the next action of its lane waits for it, which in turn waits for nothing else. That is most of a
  /// pass if ranks share the layers.
  void run_ahead(int action, double now) {
    for (;;) {
      const double ends = now + seconds_of(action);
      const int next = next_on_lane_[at(action)];
      if (next < 0 || first_edge_[at(action)] >= 0 || pending_[at(next)] > 1 || joint_of_[at(next)] >= 0) return schedule_end(action, ends);
      made_.actions[at(action)].end = ends;
      ++version_[at(action)], ++ran_ahead_;
      pending_[at(next)] = 0;
      made_.actions[at(next)].begin = ends, made_.actions[at(next)].because = action;
      now = ends, action = next;
    }
  }

  void end(int action, double now) {
    made_.actions[at(action)].end = now;
    made_.seconds = std::max(made_.seconds, now);
    if (seconds_of(action) > 0 && rates_matter()) {
      const int stage = made_.stage_of(action);
      if (stages_[at(stage)].computing == action) change(stage, now, [](Stage& of) { of.computing = -1; });
      if (disturbs(*actions_[at(action)])) change(stage, now, [](Stage& of) { --of.disturbing; });
    }
    const auto goes_on = [&](int next) {
      if (--pending_[at(next)] == 0) ready(next, now, action);
    };
    if (const int next = next_on_lane_[at(action)]; next >= 0) goes_on(next);
    for (int i = first_edge_[at(action)]; i >= 0; i = edges_[at(i)].next) goes_on(edges_[at(i)].to);
  }

  [[noreturn]] void refuse() const {
    for (int i = 0; i < std::ssize(actions_); ++i) {
      if (version_[at(i)] > 0) continue;
      const int stage = made_.stage_of(i);
      const Action& action = *actions_[at(i)];
      throw ConfigError(fmt::format(
          "stage {} of a step program waits forever before action {} ({} {}{}): no stage sends what it waits for", stage,
          i - made_.first[at(stage)], name_of(action.kind),
          action.kind == Action::Kind::compute ? name_of(action.work) : name_of(action.exchange),
          action.kind == Action::Kind::communicate ? fmt::format(", tag {}, peer {}", action.tag, action.peer) : std::string()));
    }
    throw InternalError("a step program has no end");
  }

  std::span<const double> durations_;
  double slowdown_;
  std::optional<Turns> turns_;
  std::vector<const Action*> actions_;
  std::vector<int> pending_, version_;          // by action: the number of actions that it waits for; the number of events created for it
  std::vector<std::uint8_t> receives_;          // by action: whether it is a receive
  std::vector<std::pair<int, int>> messages_;   // action, stage
  std::vector<int> next_on_lane_, first_edge_;  // by action, or −1
  std::vector<Edge> edges_;
  std::vector<int> joint_of_, joined_;  // by action: its joint collective, or −1; by stage: the joint collectives so far
  std::vector<JointCollective> joint_;
  std::vector<Stage> stages_;
  std::optional<Event> soonest_;
  std::priority_queue<Event> events_;
  std::size_t ran_ahead_ = 0;  // actions that ended without an event
  Play made_;
};

}  // namespace

int Play::stage_of(int action) const {
  return static_cast<int>(std::ranges::upper_bound(first.begin(), first.end() - 1, action) - first.begin()) - 1;
}

Play play(std::span<const schedule::Program> stages, std::span<const double> durations, const PlayOptions& options) {
  return Player(stages, durations, options).run();
}

}  // namespace paceline::perf
