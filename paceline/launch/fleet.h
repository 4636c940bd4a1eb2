// Parameter servers and workers: server 0 is the job, and a worker may be lost.
//
//   a worker ends badly     started again, where restarts are left; else told in one line, and the others go on: a failure only where none
//   is
//                           left and none has ended well
//   a server ends badly     started again, where restarts are left; else a failure: the others have the grace, then SIGTERM, then SIGKILL
//   server 0 has ended well the job is over, with its exit code: the workers have the grace to end, then what still runs gets SIGTERM
//
// A server that writes its checkpoint because of a signal from outside is never hurried: then all are waited for, as among equals.
#pragma once

#include "paceline/launch/attempt.h"

namespace paceline::launch {

class Fleet final : public Attempt {
 public:
  using Attempt::Attempt;

 private:
  void judge(const std::vector<Rank*>& ended_now) override;
  Ending ending() const override;

  void server_ended(Rank& server);
  /// Starts a rank that ended badly again. Returns false if no restart is left, or the job is ending.
  bool restart(Rank& rank);
  void fail(const Rank& cause);
  bool any_worker(bool (*is_so)(const Rank&)) const;

  const Rank* cause_ = nullptr;  // whose end made the job fail: a server, or the last worker
  bool over_ = false;            // server 0 has ended well
};

}  // namespace paceline::launch
