// Which rank runs where. A pure function from the command line's request and this machine's resources to a list of places.
//
// Hosts are filled in order, so the ranks of a host are neighbours, as the hierarchical collectives expect.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace paceline::launch {

struct Host {
  std::string name;
  int slots = 1;
};

/// Parses "a:2,b,c:4": a host without a number has one slot; the slots of a repeated host are added. Throws ConfigError.
std::vector<Host> parse_hosts(const std::string& list);

/// Reads Open MPI's hostfile: one line per host, `name slots=N`; # begins a comment. Throws DataError with the line.
std::vector<Host> read_hostfile(const std::filesystem::path& file);

/// What the command line asks for.
struct Request {
  std::vector<Host> hosts{};      // empty: this one
  std::optional<int> ranks{};     // -np: of the whole job
  std::optional<int> per_node{};  // --nproc-per-node
  int nodes = 1;                  // --nnodes: the number of launchers, of which this is number node_rank
  std::optional<int> node_rank{};
  int servers = 0;               // --servers: the first ranks, before the workers
  std::optional<int> workers{};  // --workers; without servers the same as -np
};

/// What this machine has.
struct Machine {
  int cores = 1;
  std::function<bool(const std::string& host)> is_here;
  int gpus = 0;
};

struct Place {
  int rank = 0;
  int local_rank = 0, local_size = 1;
  int node = 0;
  std::string host;  // as the user wrote it; empty: this one
  bool here = true;  // otherwise it is reached by ssh
};

struct Placement {
  int size = 1;               // of the whole job
  std::vector<Place> places;  // that this launcher starts

  bool one_host() const { return places.front().local_size == size; }
};

/// Throws ConfigError if the request contradicts itself or asks for more than there is.
Placement place_ranks(const Request& request, const Machine& machine);

/// Parses the number of ranks per host: "4", or torchrun's words for as many as there are: cpu, gpu, auto (cpu). Throws ConfigError.
int parse_per_node(const std::string& text, const Machine& machine);

/// Parses "2" or "2:2". A real range, which asks for a job that grows and shrinks, is rejected.
int parse_nodes(const std::string& text);

}  // namespace paceline::launch
