// What every engine must do, told by one oracle: data that each rank can make for any other, and results worked out from them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "paceline/comm/communicator.h"

namespace paceline::comm {

struct Case {
  schedule::Collective collective = schedule::Collective::allreduce;
  std::string algorithm = "auto";
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::int64_t count = 0;
  int root = 0;
  bool shared_memory = false;  // in memory of the communicator's own, not in the caller's
  bool asynchronous = false;
};
std::string describe(const Case& tried);

/// Every algorithm for the collective, types, operations, sizes from nothing to more than any internal buffer holds, both kinds of memory.
std::vector<Case> all_cases(int size, const Topology& topology, std::span<const DType> types);

/// Runs the case on this rank; an explanation of the first wrong element, or empty. All ranks call it.
std::string conform(Communicator& communicator, const Case& tried);

/// Sends and receives with tags out of order, many at once, in rings; messages that come long before anybody receives them, while a
/// collective and later messages pass; groups within groups; operations that overlap. An explanation, or empty.
std::string conform_messages(Communicator& communicator);
std::string conform_early_messages(Communicator& communicator);
std::string conform_split(Communicator& communicator);
std::string conform_overlap(Communicator& communicator);
/// Meshes of every shape: each rank's groups, and what they add up.
std::string conform_mesh(Communicator& communicator);

/// All of it. The first explanation, or empty.
std::string conform_all(Communicator& communicator, std::span<const DType> types = kDTypes);

}  // namespace paceline::comm
