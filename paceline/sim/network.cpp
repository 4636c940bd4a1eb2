#include "paceline/sim/network.h"

#include <algorithm>
#include <cmath>

namespace paceline::sim {
namespace {

constexpr double kFull = 1 + 1e-9;  // tolerance: shares that add up to one, except for rounding, do not overload their link

}  // namespace

Nanoseconds nanoseconds(double seconds) { return Nanoseconds(static_cast<std::int64_t>(std::ceil(seconds * 1e9 - 1e-3))); }

std::size_t Network::add_link(double bytes_per_s) {
  links_.push_back({.bytes_per_s = bytes_per_s});
  return links_.size() - 1;
}

void Network::start(Nanoseconds latency, double seconds, std::vector<Use> uses, std::int64_t token) {
  std::size_t index = transfers_.size();
  if (free_.empty()) {
    transfers_.emplace_back().actor = loop_.add();
    by_actor_.resize(loop_.actors(), kNobody);
    by_actor_[transfers_.back().actor] = index;
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Transfer& transfer = transfers_[index];
  transfer.full_s = transfer.left_s = seconds, transfer.speed = 1, transfer.uses = std::move(uses), transfer.token = token;
  transfer.moves = false;
  ++started_;
  if (latency > Nanoseconds(0)) loop_.plan(transfer.actor, latency);
  else begin(transfer, index);
}

void Network::begin(Transfer& transfer, std::size_t index) {
  transfer.moves = true, transfer.since = loop_.now();
  transfer.places.resize(transfer.uses.size());
  for (std::size_t i = 0; i < transfer.uses.size(); ++i) {
    Link& link = links_[transfer.uses[i].link];
    link.load += transfer.uses[i].share;
    transfer.places[i] = link.users.size();
    link.users.push_back({index, i});
    if (link.load > kFull) mark(transfer.uses[i].link);
  }
  loop_.plan(transfer.actor, nanoseconds(transfer.left_s));
}

void Network::mark(std::size_t link) {
  if (links_[link].marked) return;
  links_[link].marked = true;
  changed_.push_back(link);
}

std::int64_t Network::on_event(EventLoop::Actor actor) {
  const std::size_t index = by_actor_[actor];
  if (!transfers_[index].moves) {
    begin(transfers_[index], index);
    return -1;
  }
  end(index);
  return transfers_[index].token;
}

void Network::end(std::size_t index) {
  Transfer& transfer = transfers_[index];
  for (std::size_t i = 0; i < transfer.uses.size(); ++i) {
    const std::size_t number = transfer.uses[i].link;
    Link& link = links_[number];
    if (link.load > kFull) mark(number);
    link.busy_s += transfer.uses[i].share * transfer.full_s;
    const User last = link.users.back();
    link.users[transfer.places[i]] = last;
    transfers_[last.transfer].places[last.use] = transfer.places[i];
    link.users.pop_back();
    link.load = link.users.empty() ? 0 : link.load - transfer.uses[i].share;
  }
  free_.push_back(index);
}

void Network::set_speed(Transfer& transfer, double speed) {
  if (speed == transfer.speed) return;
  transfer.left_s = std::max(0.0, transfer.left_s - transfer.speed * seconds(loop_.now() - transfer.since));
  transfer.since = loop_.now(), transfer.speed = speed;
  loop_.plan(transfer.actor, nanoseconds(transfer.left_s / speed));
}

void Network::settle() {
  if (changed_.empty()) return;
  // All transfers whose speed may change: those on changed links, and on full links that they cross, and so on. Links that are not full
  // hold nobody back.
  std::vector<std::size_t> touched;
  for (std::size_t next = 0; next < changed_.size(); ++next) {
    Link& link = links_[changed_[next]];
    link.room = 1, link.unfixed = 0;
    for (const User& user : link.users) {
      Transfer& transfer = transfers_[user.transfer];
      link.unfixed += transfer.uses[user.use].share;
      if (transfer.marked) continue;
      transfer.marked = true, transfer.fixed = false;
      touched.push_back(user.transfer);
      for (const Use& use : transfer.uses)
        if (links_[use.link].load > kFull) mark(use.link);
    }
  }
  for (std::size_t unfixed = touched.size(); unfixed > 0;) {
    double speed = 1;
    const Link* fullest = nullptr;
    for (const std::size_t number : changed_) {
      const Link& link = links_[number];
      if (link.unfixed > 1e-12 && link.room < speed * link.unfixed) speed = link.room / link.unfixed, fullest = &link;
    }
    if (!fullest) break;
    const std::vector<User> users = fullest->users;
    for (const User& user : users) {
      Transfer& transfer = transfers_[user.transfer];
      if (transfer.fixed) continue;
      transfer.fixed = true, --unfixed;
      for (const Use& use : transfer.uses) {
        if (!links_[use.link].marked) continue;
        links_[use.link].room = std::max(0.0, links_[use.link].room - use.share * speed);
        links_[use.link].unfixed -= use.share;
      }
      set_speed(transfer, std::max(speed, 1e-9));
    }
  }
  for (const std::size_t number : touched) {
    if (!transfers_[number].fixed) set_speed(transfers_[number], 1);
    transfers_[number].marked = false;
  }
  for (const std::size_t number : changed_) links_[number].marked = false;
  changed_.clear();
}

}  // namespace paceline::sim
