// The environment variables that tell a rank who it is.
//
// Ranks of a job without parameter servers get what torchrun sets: RANK, WORLD_SIZE and so on. Servers and workers instead get
// PACELINE_ROLE, their number, the servers' addresses and the number of workers, and nothing that would make comm::discover() take them for
// a group of ranks: each of them is a world of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "paceline/launch/job.h"

namespace paceline::launch {

/// Those of one rank, what the job exports, and OMP_NUM_THREADS if it is set here; each name once. The rank's own variables take
/// precedence.
std::vector<std::string> rank_variables(const Job& job, const Place& place, int restarts);

/// The complete environment of a local process: these variables, and this process's without those that other launchers set for a rank.
std::vector<std::string> environment_with(const std::vector<std::string>& variables, const Job& job);

bool has_variable(const std::vector<std::string>& variables, std::string_view name);
void set_variable(std::vector<std::string>& variables, const std::string& variable);  ///< NAME=VALUE, in place of another of that name

/// Whether it identifies a rank, so that a launched process must not pass it on. `variable` may be NAME or NAME=VALUE.
bool set_by_launcher(std::string_view variable);

}  // namespace paceline::launch
