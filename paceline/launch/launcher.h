// The launcher: starts the ranks of a plan, passes their output and signals on, and ends when they have, with one line where it went wrong.
//
//   running ── a rank failed ──▶ grace: the others report by themselves ── 5 s ──▶ SIGTERM ── 5 s ──▶ SIGKILL ──▶ over, or everybody anew
//
// A signal from outside is passed on and that is all: ranks may need their time for a checkpoint. A third one kills.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/launch/output.h"
#include "paceline/launch/plan.h"

namespace paceline::launch {

struct Job {
  Plan plan;
  std::vector<std::string> program;  // and its arguments
  std::string address;               // MASTER_ADDR; empty: found by itself, unless there are several launchers
  int port = 0;                      // MASTER_PORT; 0: a free one
  std::optional<std::string> token;  // PACELINE_JOB, where several launchers must agree on it; else a random one for every start
  std::vector<std::string> ssh = {"ssh"};
  std::vector<std::string> exported;  // NAME=VALUE for all ranks, those on other hosts too
  int max_restarts = 0;
  Nanoseconds grace = std::chrono::seconds(5);
  OutputOptions output;
};

/// Runs it to its end. Returns 0 where all ranks did, 3 where all stopped with 3 (or 0), else the code of the rank that failed first: 128 +
/// signal where one killed it. Takes over SIGCHLD and the signals that it passes on until it returns. Throws ConfigError where nothing
/// could be started.
int launch(const Job& job);

/// The variables that tell a rank who it is, as torchrun names them.
std::vector<std::string> rank_variables(const Job& job, const Place& place, int restarts);

}  // namespace paceline::launch
