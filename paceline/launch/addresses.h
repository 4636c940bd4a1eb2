// The addresses of a job: hosts that all its processes can reach, and ports that no other program gets while the job runs.
#pragma once

#include <list>
#include <set>

#include "paceline/launch/job.h"
#include "paceline/launch/this_host.h"

namespace paceline::launch {

class JobAddresses {
 public:
  /// Fills in address, port and server_addresses if the job does not set them. All ports differ, even on different hosts.
  explicit JobAddresses(Job& job);

 private:
  int new_port(const Place& place);

  std::set<int> ports_;
  std::list<ReservedPort> held_;  // of this host
};

}  // namespace paceline::launch
