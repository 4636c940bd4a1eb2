#include "paceline/launch/servers_attempt.h"

#include <fmt/format.h>

#include <algorithm>

#include "paceline/base/log.h"
#include "paceline/base/run_program.h"

namespace paceline::launch {
namespace {

bool is_worker(const Rank& rank) { return rank.role.kind == Role::Kind::worker; }
bool runs(const Rank& rank) { return !rank.exit; }
bool ended_well(const Rank& rank) { return rank.exit && rank.exit->good(); }

}  // namespace

void ServersAttempt::judge(const std::vector<Rank*>& ended_now) {
  std::vector<Rank*> ended = ended_now;
  const Rank* lost = nullptr;
  std::erase_if(ended, [&](Rank* rank) { return is_worker(*rank) && failed(*rank) && cause_ == nullptr && !over_ && restart(*rank); });
  const bool worker_runs = any_worker(runs);
  for (Rank* rank : ended) {
    if (!is_worker(*rank)) {
      server_ended(*rank);
    } else if (failed(*rank) && cause_ == nullptr) {
      log::warning("{}{}", rank->end(), worker_runs && !over_ ? "; the others continue" : "");
      lost = rank;
    }
  }
  if (lost != nullptr && !worker_runs && !any_worker(ended_well) && cause_ == nullptr && !over_ && !told_to_end()) fail(*lost);
  if (over_ && !worker_runs && std::ranges::any_of(ranks(), runs) && !is_stopping()) stop_after(Nanoseconds(0));
}

void ServersAttempt::server_ended(Rank& server) {
  const bool first = server.role.index == 0;
  const bool stopped = first && server.exit->code == kStopped && !told_to_end();
  // It may have been about to end when the last worker was lost, but not when another server was.
  if (first && (ended_well(server) || stopped) && !is_stopping() && (cause_ == nullptr || is_worker(*cause_))) {
    cause_ = nullptr;
    over_ = true;
    return stop_after(job().grace);
  }
  if (!failed(server) || cause_ != nullptr) return;
  if (over_) return log::warning("{}, after server 0 had ended", server.end());
  if (!any_worker(runs) || !restart(server)) fail(server);
}

bool ServersAttempt::restart(Rank& rank) {
  if (rank.lived >= job().healthy_after) rank.restarts_counted = 0;
  if (rank.restarts_counted >= job().max_restarts || told_to_end() || rank.exit->code == kWrongInput) return false;
  log::warning("{}; restarting it, restart {} of {}", rank.end(), ++rank.restarts_counted, job().max_restarts);
  start_again(rank);
  return true;
}

void ServersAttempt::fail(const Rank& cause) {
  cause_ = &cause;
  stop_after(job().grace);
}

bool ServersAttempt::any_worker(bool (*is_so)(const Rank&)) const {
  return std::ranges::any_of(ranks(), [&](const Rank& rank) { return is_worker(rank) && is_so(rank); });
}

Ending ServersAttempt::ending() const {
  const Rank& first = ranks().front();
  if (cause_ != nullptr && is_worker(*cause_)) return failed_with(*cause_, "all workers were lost; the servers were stopped");
  if (cause_ != nullptr) return failed_with(*cause_, cause_->end() + "; the others were stopped");
  if (ended_well(first) || first.exit->code == kStopped) return ended_with(first.exit->code);
  return ended_as_told();
}

}  // namespace paceline::launch
