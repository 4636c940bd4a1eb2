// Which workers are present: they join, leave, are lost or fall silent; and servers that restart.
#include <utility>

#include "paceline/ps/concurrent_server.h"

namespace paceline::ps {

bool ConcurrentServer::cancelled(int worker) {
  const std::unique_lock state(state_, std::try_to_lock);
  return state && server_->cancelled(worker);
}

void ConcurrentServer::join(int worker) {
  if (worker == kObserver) return;
  {
    const std::scoped_lock both(state_, memory_);
    const int changes = presence(worker).changes + 1;
    const bool expected = presence(worker).expected;
    presence(worker) = {.here = true,
                        .returns = began_again_ && changes == 1 && !expected,
                        .changes = changes,
                        .assigned = presence(worker).assigned,
                        .heard = clock_.now()};
    if (presence(worker).returns) return;
    note(expected ? Journal::Kind::returned : Journal::Kind::joined, worker);
    if (expected) server_->returned(worker);
    else server_->joined(worker);
  }
  changed_.notify_all();
}

void ConcurrentServer::leave(int worker) {
  {
    const std::scoped_lock both(state_, memory_);
    if (!presence(worker).here) return;
    presence(worker).here = false;
    ++presence(worker).changes;
    note(Journal::Kind::left, worker);
    server_->left(worker);
  }
  changed_.notify_all();
}

bool ConcurrentServer::lose(int worker) {
  const bool keeps_place = [&] {
    const std::scoped_lock both(state_, memory_);
    Presence& lost = presence(worker);
    if (lost.expected || !limits_.started_again || !server_->synchronous() || !lost.here || lost.returns) return lost.expected;
    note(Journal::Kind::lost, worker);
    server_->interrupted(worker);
    lost = {.here = true, .expected = true, .changes = lost.changes + 1, .assigned = lost.assigned, .heard = clock_.now()};
    return true;
  }();
  if (keeps_place) changed_.notify_all();
  else leave(worker);
  return keeps_place;
}

bool ConcurrentServer::is_expected(int worker) {
  const std::scoped_lock state(state_);
  return presence(worker).expected;
}

void ConcurrentServer::heard_of(int worker) {
  const std::scoped_lock state(state_);
  presence(worker).heard = clock_.now();
}

std::vector<int> ConcurrentServer::forget_silent() {
  std::vector<int> gone;
  {
    const std::scoped_lock state(state_);
    for (std::size_t i = 0; i < presence_.size(); ++i)
      if (presence_[i].here && !presence_[i].waits && clock_.now() - presence_[i].heard > limits_.silence)
        gone.push_back(static_cast<int>(i));
  }
  for (const int worker : gone) leave(worker);
  return gone;
}

void ConcurrentServer::begin_again(bool knows_round) {
  const std::scoped_lock both(state_, memory_);
  began_again_ = true;
  if (!knows_round) {
    note(Journal::Kind::all_away, 0);
    return server_->all_away();
  }
  note(Journal::Kind::interrupted, 0);
  server_->interrupted();
  for (const int member : server_->members()) {
    presence(member).here = presence(member).expected = true;
    presence(member).heard = clock_.now();
  }
}

void ConcurrentServer::close(const std::string& reason) {
  {
    const std::scoped_lock state(state_);
    closed_ = reason;
  }
  changed_.notify_all();
}

}  // namespace paceline::ps
