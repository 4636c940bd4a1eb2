// What workers exchange about files: where the run's folder is, who can access it, and what went wrong.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline::train {

/// The texts of all workers, by rank; long ones are truncated. Collective.
std::vector<std::string> gather_texts(comm::Communicator& comm, const std::string& mine);

/// Worker 0's folder, as an absolute path on the others. Collective.
std::filesystem::path tell_folder(comm::Communicator& comm, const std::filesystem::path& folder);

/// The workers whose file system has the same folder as worker 0, which creates it if it is missing. Worker 0 is one of them.
/// Collective.
std::vector<int> who_sees(comm::Communicator& comm, const std::filesystem::path& folder);

}  // namespace paceline::train
