// What a rank is called: "rank 2" in a job without parameter servers; "server 0" or "worker 3" in a job with parameter servers, whose first
// ranks are the servers.
#pragma once

#include <fmt/format.h>

#include <string>

namespace paceline::launch {

struct Role {
  enum class Kind { rank, server, worker } kind = Kind::rank;
  int index = 0;  // among its kind

  /// The role of a rank in a job with this many servers; 0: all are ranks.
  static Role of(int rank, int servers) {
    if (servers == 0) return {Kind::rank, rank};
    return rank < servers ? Role{Kind::server, rank} : Role{Kind::worker, rank - servers};
  }

  const char* word() const { return kind == Kind::rank ? "rank" : kind == Kind::server ? "server" : "worker"; }
  std::string name() const { return fmt::format("{} {}", word(), index); }
  std::string file_name() const { return fmt::format("{}-{}.log", word(), index); }
};

}  // namespace paceline::launch
