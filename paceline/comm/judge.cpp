#include "paceline/comm/judge.h"

#include <numeric>

#include <fmt/format.h>

#include "paceline/base/launcher_line.h"

namespace paceline::comm {
namespace {

// How long to wait before looking beyond the rank that is waited for: what a dead rank did before it died may be enough.
constexpr Nanoseconds kLongWait = std::chrono::seconds(2);

/// A rank of the collective that died, and how that is known. The rank that is waited for may be alive and merely late, but when it arrives
/// it will wait for the dead one as well.
std::pair<int, std::string> dead_rank(const Call& call, Waiter& waiter) {
  for (int other = 0; other < call.ranks; ++other)
    if (other != call.rank)
      if (std::string reason = waiter.gone(other); !reason.empty() && reason != kLeft) return {other, std::move(reason)};
  return {-1, {}};
}

}  // namespace

Judge::Judge(std::shared_ptr<Store> store, int rank, int ranks)
    : store_(std::move(store)), rank_(rank), run_size_(ranks), names_(static_cast<std::size_t>(ranks)) {
  std::iota(names_.begin(), names_.end(), 0);
}

Judge Judge::of_group(const std::vector<int>& members, int place) const {
  Judge group(store_, place, static_cast<int>(members.size()));
  for (std::size_t i = 0; i < members.size(); ++i) group.names_[i] = name(members[i]);
  group.run_size_ = run_size_;
  group.is_run_ = is_run_ && group.names_ == names_;
  return group;
}

std::string Judge::who(int rank) const {
  return is_run_ ? fmt::format("rank {}", rank) : fmt::format("rank {} ({} of its group)", name(rank), rank);
}

std::string Judge::in(const Call& call) const {
  return fmt::format(", in {} (sequence {} of {})", describe(call.operation), call.sequence, who(call.rank));
}

bool Judge::advance(Activity& activity, const Call& call, Waiter& waiter) const {
  try {
    return activity.advance();
  } catch (const PeerError& error) {
    const int peer = error.rank();
    if (const int culprit = peer < 0 ? -1 : waiter.culprit_of(peer); culprit >= 0) follow(peer, culprit, call);
    accuse({peer, error.what(), peer >= 0 && !waiter.gone(peer).empty()}, call);
  }
}

bool Judge::check(Activity& activity, const Call& call, Nanoseconds waited, Waiter& waiter) const {
  const int peer = activity.waits_for();
  if (store_ && store_->loss()) {
    if (advance(activity, call, waiter)) return true;
    check_loss(call, activity.waits_for());
  }
  const std::string reason = peer < 0 ? "" : waiter.gone(peer);
  const int culprit = peer < 0 ? -1 : waiter.culprit_of(peer);
  if (!reason.empty() || culprit >= 0) {
    if (advance(activity, call, waiter)) return true;  // the peer did its part before it was gone
    if (activity.waits_for() != peer) return false;    // so this continues
    if (culprit >= 0) follow(peer, culprit, call);
    accuse({peer, reason, true}, call);
  }
  if (waited > kLongWait && call.operation.is_collective())
    if (const auto [dead, how] = dead_rank(call, waiter); dead >= 0) {
      if (advance(activity, call, waiter)) return true;
      accuse({dead, how, true}, call);
    }
  if (waited > call.operation.deadline) accuse({peer, fmt::format("did not come within {:.3g} s", seconds(call.operation.deadline))}, call);
  return false;
}

/// A collective needs every rank: some rank of its group may be waiting for one outside it. A message needs its peer.
void Judge::check_loss(const Call& call, int peer) const {
  const std::optional<Loss> loss = store_ ? store_->loss() : std::nullopt;
  if (!loss) return;
  const bool own = loss->rank == own_name();
  if (!own && !call.operation.is_collective() && loss->rank != name(peer)) return;
  throw PeerSilent(loss->rank, std::string(name_of(call.operation.kind)), call.sequence,
                   fmt::format("rank {} {}{}{}", loss->rank, loss->text(), in(call), own ? "; the others gave up on this rank" : ""),
                   loss->silent);
}

/// The peer gave up; the store had decided who is to blame before the peer said so.
void Judge::follow(int peer, int culprit, const Call& call) const {
  const std::string because = culprit == name(peer) ? "" : fmt::format(" because of rank {}", culprit);
  const char* own = culprit == own_name() ? "; the others gave up on this rank: it came too late, or called something else" : "";
  throw PeerError(culprit, std::string(name_of(call.operation.kind)), call.sequence,
                  fmt::format("{} gave up{}{}{}", who(peer), because, in(call), own));
}

/// The rest of the message, if the accused is not the culprit.
std::string Judge::beyond(int accused, int culprit) const {
  if (culprit == name(accused)) return {};
  if (culprit == own_name()) return "; the others gave up on this rank: it came too late, or called something else";
  return fmt::format("; {} itself waited for rank {}", who(accused), culprit);
}

void Judge::accuse(const Accused& accused, const Call& call) const {
  const int name_of_accused = name(accused.rank);
  int culprit = name_of_accused;
  // An engine's text about a peer may already begin with its name.
  std::string text = accused.why.starts_with("rank ") ? accused.why : fmt::format("{} {}", who(accused.rank), accused.why);
  if (text.find("(sequence ") == std::string::npos) text += in(call);
  if (store_ && culprit >= 0) {
    std::optional<int> found;
    try {
      found = store_->culprit(own_name(), name_of_accused, accused.is_gone);
    } catch (const PeerError&) {  // no answer
      found = store_->cause();
    }
    check_loss(call, accused.rank);
    culprit = found.value_or(0);
    text += found ? beyond(accused.rank, culprit) : "; rank 0, which serves the store, does not answer";
  }
  const std::string operation(name_of(call.operation.kind));
  if (culprit == name_of_accused && accused.why == kLeft) throw PeerLeft(culprit, operation, call.sequence, text);
  throw PeerError(culprit, operation, call.sequence, text);
}

void Judge::tell_launcher(const std::exception_ptr& error) const {
  try {
    std::rethrow_exception(error);
  } catch (const PeerError& problem) {
    paceline::tell_launcher(problem, run_size_);
  } catch (...) {  // an error of its own, which is reported when it ends
  }
}

}  // namespace paceline::comm
