// What is to be run: a program as the ranks of a plan, either as equals or as parameter servers and workers.
#pragma once

#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/launch/output.h"
#include "paceline/launch/plan.h"

namespace paceline::launch {

struct Job {
  Plan plan;
  int servers = 0;                            // the first so many ranks are parameter servers, the others workers; 0: all are equals
  std::vector<std::string> program;           // and its arguments
  std::string address;                        // MASTER_ADDR, or of server 0; empty: found by itself, unless there are several launchers
  int port = 0;                               // MASTER_PORT, or of server 0; 0: a free one
  std::vector<std::string> server_addresses;  // host:port for each server; Meeting finds them
  std::string token;                          // PACELINE_JOB, where several launchers must agree on it; empty: launch() makes a random one
  std::vector<std::string> ssh = {"ssh"};
  std::vector<std::string> exported;                      // NAME=VALUE for all ranks, those on other hosts too
  int max_restarts = 0;                                   // of everybody; with servers: of each server
  Nanoseconds healthy_after = std::chrono::seconds(300);  // whoever lived that long has all restarts again
  Nanoseconds grace = std::chrono::seconds(5);
  OutputOptions output;
};

}  // namespace paceline::launch
