// What workers tell one another about files: where the run's folder is, who sees it, and what went wrong.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline::train {

/// Everybody's text, in the order of ranks; long ones are cut. Collective.
std::vector<std::string> gather_texts(comm::Communicator& comm, const std::string& mine);

/// Worker 0's folder; to the others as an absolute path. Collective.
std::filesystem::path tell_folder(comm::Communicator& comm, const std::filesystem::path& folder);

/// The workers whose file system has the very folder that worker 0 has, which makes it where it is missing. Worker 0 is one of them.
/// Collective.
std::vector<int> who_sees(comm::Communicator& comm, const std::filesystem::path& folder);

}  // namespace paceline::train
