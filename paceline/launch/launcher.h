// The launcher: starts the ranks of a placement, forwards their output and signals, and ends when they have, with one line if it went
// wrong.
//
//   running ── a rank failed ──▶ grace: the others report themselves ── 5 s ──▶ SIGTERM ── 5 s ──▶ SIGKILL ──▶ over, or all restarted
//
// A signal from outside is only forwarded: ranks may need time for a checkpoint. A third one kills. A job with parameter servers survives
// the loss of workers: see servers_attempt.h.
#pragma once

#include "paceline/launch/ending.h"
#include "paceline/launch/job.h"

namespace paceline::launch {

/// Runs the job to its end, and reports a failure in one line. The code is 0 if all ranks ended with 0, 3 if all stopped with 3 (or 0),
/// else the code of the rank that failed first: 128 + signal if it was killed. With servers: the code of server 0, unless another server
/// or all workers failed. Takes over SIGCHLD and the signals that it forwards until it returns. Throws ConfigError if nothing could be
/// started.
Ending launch(const Job& job);

}  // namespace paceline::launch
