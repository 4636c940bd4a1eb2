// How a job ended: what `paceline run` returns and prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "paceline/base/clock.h"

namespace paceline::launch {

/// One rank, the last time it was started.
struct RankEnding {
  int rank = 0;
  std::string name;       // "rank 2", "server 0", "worker 1"
  std::string host, how;  // "exited with code 1"
  int code = 0;           // as a shell would give it
  int restarts = 0;
  Nanoseconds lived{0};
};

struct Ending {
  std::optional<std::string> failure;  // one line: which rank and how
  int code = 0;
  int stopped_by = 0;               // the signal from outside, if there was one
  std::optional<int> culprit = {};  // the rank whose end made the job fail
  std::vector<RankEnding> ranks = {};
};

}  // namespace paceline::launch
