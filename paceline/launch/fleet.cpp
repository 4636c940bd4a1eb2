#include "paceline/launch/fleet.h"

#include <fmt/format.h>

#include <algorithm>

#include "paceline/base/log.h"
#include "paceline/base/program.h"

namespace paceline::launch {
namespace {

bool is_worker(const Rank& rank) { return rank.role.kind == Role::Kind::worker; }
bool runs(const Rank& rank) { return !rank.exit; }
bool ended_well(const Rank& rank) { return rank.exit && rank.exit->good(); }

}  // namespace

void Fleet::judge(const std::vector<Rank*>& ended) {
  const bool worker_runs = any_worker(runs);
  const Rank* lost = nullptr;
  for (Rank* rank : ended) {
    if (!is_worker(*rank)) {
      server_ended(*rank);
    } else if (failed(*rank) && cause_ == nullptr) {
      log::warning("{}{}", rank->end(), worker_runs && !over_ ? "; the others go on" : "");
      lost = rank;
    }
  }
  if (lost != nullptr && !worker_runs && !any_worker(ended_well) && cause_ == nullptr && !over_ && !told_to_end()) fail(*lost);
  if (over_ && !worker_runs && std::ranges::any_of(ranks(), runs) && !is_stopping()) stop_after(Nanoseconds(0));
}

void Fleet::server_ended(Rank& server) {
  const bool first = server.role.index == 0;
  const bool stopped = first && server.exit->code == kStopped && !told_to_end();
  // It may have been about to end when the last worker was lost; not so where another server was.
  if (first && (ended_well(server) || stopped) && !is_stopping() && (cause_ == nullptr || is_worker(*cause_))) {
    cause_ = nullptr;
    over_ = true;
    return stop_after(job().grace);
  }
  if (!failed(server) || cause_ != nullptr) return;
  if (over_) return log::warning("{}, when server 0 had ended", server.end());
  if (server.lived >= job().healthy_after) server.restarts_counted = 0;
  const bool again = server.restarts_counted < job().max_restarts && !told_to_end() && server.exit->code != kWrongInput && any_worker(runs);
  if (!again) return fail(server);
  log::warning("{}; it is started again, restart {} of {}", server.end(), ++server.restarts_counted, job().max_restarts);
  start_again(server);
}

void Fleet::fail(const Rank& cause) {
  cause_ = &cause;
  stop_after(job().grace);
}

bool Fleet::any_worker(bool (*is_so)(const Rank&)) const {
  return std::ranges::any_of(ranks(), [&](const Rank& rank) { return is_worker(rank) && is_so(rank); });
}

Ending Fleet::ending() const {
  const Rank& first = ranks().front();
  if (cause_ != nullptr && is_worker(*cause_)) return failed_with(*cause_, "all workers were lost; the servers were stopped");
  if (cause_ != nullptr) return failed_with(*cause_, cause_->end() + "; the others were stopped");
  if (ended_well(first) || first.exit->code == kStopped) return ended_with(first.exit->code);
  return ended_as_told();
}

}  // namespace paceline::launch
