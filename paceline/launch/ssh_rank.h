// A rank on another host: one ssh each, whose standard input stays open as a lifeline.
//
// The first line on it is the job's token, so that no process list shows it; then come names of signals to forward ("TERM"). When it
// closes, because the launcher or the connection died, a guard on the other side kills the rank and all its children.
#pragma once

#include <string>
#include <vector>

namespace paceline::launch {

struct RemoteRank {
  std::vector<std::string> ssh;  // "ssh", or what stands in for it, with its own arguments
  std::string host;
  std::string folder;                    // where it starts: the same path as here
  std::vector<std::string> environment;  // NAME=VALUE beyond what a login there has
  int local_size = 1;                    // ranks of that host, which share its cores; 0: do not set the number of threads
  std::vector<std::string> program;
};

/// The command to start on this host.
std::vector<std::string> ssh_command(const RemoteRank& rank);

/// Quotes a text as one word for a POSIX shell.
std::string shell_quote(const std::string& text);

}  // namespace paceline::launch
