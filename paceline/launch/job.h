// What to run: a program as the ranks of a placement, either all alike or as parameter servers and workers.
#pragma once

#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/launch/output.h"
#include "paceline/launch/places.h"

namespace paceline::launch {

struct Job {
  Placement placement;
  int servers = 0;                            // the first `servers` ranks are parameter servers, the others workers; 0: all are alike
  std::vector<std::string> program;           // and its arguments
  std::string address;                        // MASTER_ADDR, or server 0's; empty: found automatically, unless there are several launchers
  int port = 0;                               // MASTER_PORT, or server 0's; 0: a free one
  std::vector<std::string> server_addresses;  // host:port for each server; JobAddresses finds them
  std::string token;                          // PACELINE_JOB, if several launchers must agree on it; empty: launch() makes a random one
  std::vector<std::string> ssh = {"ssh"};
  std::vector<std::string> exported;                      // NAME=VALUE for all ranks, those on other hosts too
  int max_restarts = 0;                                   // of the job; with servers: of each server
  Nanoseconds healthy_after = std::chrono::seconds(300);  // a rank that lived this long has all its restarts again
  Nanoseconds grace = std::chrono::seconds(5);
  OutputOptions output;
};

}  // namespace paceline::launch
