// The variables that tell a rank who it is.
//
// Equals get what torchrun gives: RANK, WORLD_SIZE and so on. Servers and workers get PACELINE_ROLE, their number, the servers'
// addresses and how many workers there are instead, and nothing by which comm::discover() could take them for a group of ranks: each of
// them is a world of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "paceline/launch/job.h"

namespace paceline::launch {

/// Of one rank, what the job exports, and OMP_NUM_THREADS where it is set here; each name once. Who a rank is, nobody else can say.
std::vector<std::string> rank_variables(const Job& job, const Place& place, int restarts);

/// The whole environment of a process here: these variables, and those of this process less what other launchers told it of a place.
std::vector<std::string> environment_with(const std::vector<std::string>& variables, const Job& job);

bool has_variable(const std::vector<std::string>& variables, std::string_view name);
void set_variable(std::vector<std::string>& variables, const std::string& variable);  ///< NAME=VALUE, in place of another of that name

/// Whether it says who a process is, so that one that was itself launched must not pass it on. `variable` may be NAME or NAME=VALUE.
bool set_by_launcher(std::string_view variable);

}  // namespace paceline::launch
