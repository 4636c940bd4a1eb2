// Parameter servers and workers: server 0 is the job, and a worker may be lost.
//
//   a worker fails          restarted if restarts are left; else reported in one line, and the others continue: the job fails only if none
//                           is left and none has succeeded
//   a server fails          restarted if restarts are left; else the job fails: the others have the grace, then SIGTERM, then SIGKILL
//   server 0 succeeds       the job is over, with its exit code: the workers have the grace to end, then what still runs gets SIGTERM
//
// A server that writes its checkpoint because of a signal from outside is given the time: the launcher then waits for all, as in a job
// without servers.
#pragma once

#include "paceline/launch/attempt.h"

namespace paceline::launch {

class ServersAttempt final : public Attempt {
 public:
  using Attempt::Attempt;

 private:
  void judge(const std::vector<Rank*>& ended_now) override;
  Ending ending() const override;

  void server_ended(Rank& server);
  /// Restarts a rank that failed. Returns false if no restart is left, or the job is ending.
  bool restart(Rank& rank);
  void fail(const Rank& cause);
  bool any_worker(bool (*is_so)(const Rank&)) const;

  const Rank* cause_ = nullptr;  // the rank that made the job fail: a server, or the last worker
  bool over_ = false;            // server 0 has succeeded
};

}  // namespace paceline::launch
