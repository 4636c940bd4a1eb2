#include "paceline/ps/consistency/gathering.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/text.h"
#include "paceline/ps/consistency.h"

namespace paceline::ps {

Gathering::Gathering(int workers, Manner manner) : manner_(manner) {
  for (int worker = 0; worker < workers; ++worker) seats_.emplace(worker, Seat::idle);
}

bool Gathering::may_pull(int worker) const {
  const auto seat = seats_.find(worker);
  return seat != seats_.end() && (seat->second == Seat::idle || seat->second == Seat::cancelled);
}

void Gathering::pulled(int worker) {
  ensure(may_pull(worker), "a worker pulled that may not");
  seats_[worker] = Seat::computing;
}

Admission Gathering::pushed(int worker, double) {
  const auto seat = seats_.find(worker);
  if (seat == seats_.end() || seat->second != Seat::computing) {
    if (cancelled(worker)) seat->second = Seat::idle;
    return {Admission::Fate::dropped, 0};
  }
  seat->second = manner_.contributors_wait ? Seat::waiting : Seat::idle;
  ++gathered_;
  if (gathered_ >= manner_.group || !someone_can_contribute(seats_)) return update();
  return {Admission::Fate::gathered, gathered_};
}

void Gathering::refused(int worker) {
  const auto seat = seats_.find(worker);
  if (seat != seats_.end() && (seat->second == Seat::computing || seat->second == Seat::cancelled)) seat->second = Seat::idle;
}

bool Gathering::cancelled(int worker) const {
  const auto seat = seats_.find(worker);
  return seat != seats_.end() && seat->second == Seat::cancelled;
}

void Gathering::joined(int worker) {
  const auto [seat, fresh] = seats_.try_emplace(worker, Seat::idle);
  const bool contributed = seat->second == Seat::waiting || seat->second == Seat::gone;
  if (!fresh) seat->second = contributed ? Seat::waiting : Seat::idle;
}

Admission Gathering::left(int worker) {
  const auto seat = seats_.find(worker);
  if (seat != seats_.end()) {
    if (seat->second == Seat::waiting) seat->second = Seat::gone;
    else if (seat->second != Seat::gone) seats_.erase(seat);
  }
  if (!someone_can_contribute(seats_)) return update();
  return {Admission::Fate::applied, 0};
}

std::vector<int> Gathering::members() const {
  std::vector<int> members;
  for (const auto& [worker, seat] : seats_)
    if (seat != Seat::gone) members.push_back(worker);
  return members;
}

std::int64_t Gathering::present() const { return std::ssize(members()); }

bool Gathering::someone_can_contribute(const Seats& seats) {
  return std::ranges::any_of(seats, [](const auto& seat) { return seat.second != Seat::waiting && seat.second != Seat::gone; });
}

Admission Gathering::update() {
  std::erase_if(seats_, [](const auto& seat) { return seat.second == Seat::gone; });
  for (auto& [worker, seat] : seats_) {
    if (seat == Seat::waiting) seat = Seat::idle;
    else if (seat == Seat::computing && manner_.cancels) seat = Seat::cancelled;
  }
  return {Admission::Fate::applied, std::exchange(gathered_, 0)};
}

// [gathered, (worker, seat)…]
std::vector<std::int64_t> Gathering::save() const {
  std::vector<std::int64_t> state{gathered_};
  for (const auto& [worker, seat] : seats_) state.insert(state.end(), {worker, static_cast<std::int64_t>(seat)});
  return state;
}

void Gathering::load(std::span<const std::int64_t> state) {
  check_state(state.size() % 2 == 1 && std::in_range<int>(state[0]) && state[0] >= 0);
  Seats seats;
  for (auto rest = state.subspan(1); !rest.empty(); rest = rest.subspan(2)) {
    check_state(std::in_range<int>(rest[0]) && rest[1] >= 0 && rest[1] <= static_cast<std::int64_t>(Seat::gone));
    seats[static_cast<int>(rest[0])] = static_cast<Seat>(rest[1]);
  }
  check_state(someone_can_contribute(seats) || (seats.empty() && state[0] == 0));
  gathered_ = static_cast<int>(state[0]);
  seats_ = std::move(seats);
}

std::int64_t group_of(const ConsistencyConfig& config, int workers) {
  if (config.group < 0 || config.group > workers)
    throw ConfigError(fmt::format("ps.group={}, but there {} {}; use 1 to {}, or 0 for half of the workers", config.group,
                                  workers == 1 ? "is" : "are", plural(workers, "worker"), workers));
  return config.group > 0 ? config.group : std::max(1, workers / 2);
}

}  // namespace paceline::ps
