#include "paceline/sim/collective_play.h"

#include <algorithm>
#include <map>

#include "paceline/schedule/held.h"

namespace paceline::sim {
namespace {

using schedule::Step;

/// What one rank, host or switch sends and receives in a round.
struct Sides {
  double out = 0, in = 0;
  int sends = 0, receives = 0;
  double moved() const { return std::max(out, in); }
  int queued() const { return std::max({sends, receives, 1}) - 1; }
};

/// The state of one simulation.
class Player {
 public:
  Player(const ClusterMap& layout, std::span<const int> members, std::span<const double> arrivals, double bytes)
      : layout_(layout),
        costs_(perf::costs_of(layout.cluster())),
        members_(members),
        bytes_(bytes),
        at_(arrivals.begin(), arrivals.end()),
        next_(at_),
        ports_(members.size()),
        across_(members.size()),
        hosts_(static_cast<std::size_t>(layout.hosts())),
        switches_(static_cast<std::size_t>(layout.switches())),
        ports_all_(members.size()),
        hosts_all_(hosts_.size()),
        switches_all_(switches_.size()) {
    for (const int rank : members) host_.push_back(layout.host_of(rank));
  }

  void round(const CollectiveLists::Round& round) {
    for (const auto& message : round.messages) load(message);
    for (const auto& message : round.messages) {
      const double begin = std::max(at(message.from), at(message.to));
      const double end = begin + std::max(seconds(message, true), seconds(message, false));
      for (const int side : {message.from, message.to}) next(side) = std::max(next(side), end);
    }
    for (const auto& addition : round.additions)
      next(addition.rank) += (addition.reduced * costs_.reduce_s_per_byte + addition.held * costs_.held_s_per_byte) * bytes_;
    for (const auto& message : round.messages) clear(message);
    for (const auto& message : round.messages) at(message.from) = next(message.from), at(message.to) = next(message.to);
  }

  Played result(double last_arrival) const {
    Played played{.seconds = std::max(0.0, *std::ranges::max_element(at_) - last_arrival)};
    if (played.seconds <= 0) return played;
    const auto use = [&](std::size_t link, double moved, double bytes_per_s) {
      const double share = moved * bytes_ / (bytes_per_s * played.seconds);
      if (share > 0) played.uses.push_back({link, std::min(1.0, share)});
    };
    for (std::size_t i = 0; i < members_.size(); ++i) {
      use(layout_.port_link(members_[i], true), ports_all_[i].out, layout_.port_bytes_per_s());
      use(layout_.port_link(members_[i], false), ports_all_[i].in, layout_.port_bytes_per_s());
    }
    for (int h = 0; h < layout_.hosts(); ++h) {
      use(layout_.host_link(h, true), hosts_all_[static_cast<std::size_t>(h)].out, layout_.host_bytes_per_s(h));
      use(layout_.host_link(h, false), hosts_all_[static_cast<std::size_t>(h)].in, layout_.host_bytes_per_s(h));
    }
    for (int s = 0; s < layout_.switches(); ++s) {
      use(layout_.switch_link(s, true), switches_all_[static_cast<std::size_t>(s)].out, layout_.switch_bytes_per_s(s));
      use(layout_.switch_link(s, false), switches_all_[static_cast<std::size_t>(s)].in, layout_.switch_bytes_per_s(s));
    }
    return played;
  }

 private:
  using Message = CollectiveLists::Message;
  double& at(int member) { return at_[static_cast<std::size_t>(member)]; }
  double& next(int member) { return next_[static_cast<std::size_t>(member)]; }
  int host(int member) const { return host_[static_cast<std::size_t>(member)]; }
  bool stays(const Message& message) const { return host(message.from) == host(message.to); }

  static void add(Sides& sides, bool out, double part) { (out ? sides.out : sides.in) += part, (out ? sides.sends : sides.receives) += 1; }

  void load(const Message& message) {
    for (const bool out : {true, false}) {
      const int member = out ? message.from : message.to;
      const auto m = static_cast<std::size_t>(member);
      if (stays(message)) {
        add(ports_[m], out, message.part), add(ports_all_[m], out, message.part);
        continue;
      }
      const auto h = static_cast<std::size_t>(host(member));
      add(across_[m], out, message.part), add(hosts_[h], out, message.part), add(hosts_all_[h], out, message.part);
      if (changes_switch(message)) {
        const auto s = static_cast<std::size_t>(layout_.switch_of(host(member)));
        add(switches_[s], out, message.part), add(switches_all_[s], out, message.part);
      }
    }
  }

  bool changes_switch(const Message& message) const {
    return layout_.has_switches() && layout_.switch_of(host(message.from)) != layout_.switch_of(host(message.to));
  }

  /// The time that one side needs for its messages of this kind.
  double seconds(const Message& message, bool out) const {
    const int member = out ? message.from : message.to;
    const auto m = static_cast<std::size_t>(member);
    if (stays(message))
      return costs_.inside.alpha_s + ports_[m].queued() * costs_.inside.gap_s + ports_[m].moved() * bytes_ / costs_.inside.bytes_per_s;
    double transfer = hosts_[static_cast<std::size_t>(host(member))].moved() * bytes_ / layout_.host_bytes_per_s(host(member));
    if (changes_switch(message)) {
      const int s = layout_.switch_of(host(member));
      transfer = std::max(transfer, switches_[static_cast<std::size_t>(s)].moved() * bytes_ / layout_.switch_bytes_per_s(s));
    }
    return costs_.between.alpha_s + across_[m].queued() * costs_.between.gap_s + transfer;
  }

  void clear(const Message& message) {
    for (const int member : {message.from, message.to}) {
      ports_[static_cast<std::size_t>(member)] = across_[static_cast<std::size_t>(member)] = {};
      hosts_[static_cast<std::size_t>(host(member))] = {};
      if (layout_.has_switches()) switches_[static_cast<std::size_t>(layout_.switch_of(host(member)))] = {};
    }
  }

  const ClusterMap& layout_;
  schedule::Costs costs_;
  std::span<const int> members_;
  double bytes_;
  std::vector<int> host_;                                    // by member
  std::vector<double> at_, next_;                            // by member: when its previous round ended; and this one
  std::vector<Sides> ports_, across_, hosts_, switches_;     // of this round: by member, by member, by host, by switch
  std::vector<Sides> ports_all_, hosts_all_, switches_all_;  // of all rounds
};

}  // namespace

CollectiveLists::CollectiveLists(const schedule::Algorithm& algorithm, schedule::Problem problem) : size_(problem.size) {
  const double whole = static_cast<double>(std::max<std::int64_t>(problem.count, 1));
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank) {
    const schedule::Steps steps = algorithm.steps(problem);
    for (std::span<const Step> rest = steps; !rest.empty();) {
      const std::span<const Step> list = schedule::first_round(rest);
      const auto number = static_cast<std::size_t>(list.front().round);
      rounds_.resize(std::max(rounds_.size(), number + 1));
      Round::Addition addition{.rank = problem.rank};
      for (const Step& step : list) {
        const double part = static_cast<double>(step.range.size()) / whole;
        if (step.leaves()) rounds_[number].messages.push_back({problem.rank, step.peer, part});
        if (step.is_added()) addition.reduced += part;
      }
      if (addition.reduced > 0) {
        addition.held = static_cast<double>(schedule::held_elements(list)) / whole;
        rounds_[number].additions.push_back(addition);
      }
      rest = rest.subspan(list.size());
    }
  }
}

Played play(const CollectiveLists& lists, const ClusterMap& layout, std::span<const int> members, std::span<const double> arrivals,
            double bytes) {
  Player player(layout, members, arrivals, bytes);
  for (const CollectiveLists::Round& round : lists.rounds()) player.round(round);
  return player.result(*std::ranges::max_element(arrivals));
}

}  // namespace paceline::sim
