// The launcher: starts the ranks of a plan, passes their output and signals on, and ends when they have, with one line where it went wrong.
//
//   running ── a rank failed ──▶ grace: the others report by themselves ── 5 s ──▶ SIGTERM ── 5 s ──▶ SIGKILL ──▶ over, or everybody anew
//
// A signal from outside is passed on and that is all: ranks may need their time for a checkpoint. A third one kills. A job with parameter
// servers outlives its workers' deaths: see fleet.h.
#pragma once

#include "paceline/launch/ending.h"
#include "paceline/launch/job.h"

namespace paceline::launch {

/// Runs it to its end, and tells in one line where that was a bad one. The code is 0 where all ranks ended with it, 3 where all stopped
/// with 3 (or 0), else the code of the rank that failed first: 128 + signal where one killed it. With servers: the code of server 0, unless
/// another server failed or all workers did. Takes over SIGCHLD and the signals that it passes on until it returns. Throws ConfigError
/// where nothing could be started.
Ending launch(const Job& job);

}  // namespace paceline::launch
