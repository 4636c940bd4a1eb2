// The paths that execute a schedule in one pass, on memory that the ranks of a host share (schedule::Lowering). One row for each algorithm
// that declares a lowering; everything else is executed step by step (step_runner.h).
//
// Invariant: a path performs the additions of its schedule in the schedule's order, so that it gives the schedule's bits. It sends the
// schedule's messages between hosts, and inside a host it moves from rank to rank the bytes of the schedule's messages.
// tests/comm/lowering_test.cpp holds all of this against the steps.
#pragma once

#include "paceline/base/registry.h"
#include "paceline/comm/activity.h"
#include "paceline/comm/driver.h"
#include "paceline/comm/scratch.h"
#include "paceline/comm/shared/group.h"

namespace paceline::comm {

struct LoweringSite {
  Transport& transport;
  Scratch& scratch;
  shared::Group& host;  // the ranks of this host
  const Operation& operation;
  const schedule::Problem& problem;  // a problem that the lowering supports
  std::int64_t sequence;
  Tag first_tag;  // of Hierarchical::kLanes tags
};

/// A path: as an activity that a driver owns, or driven at once.
struct LoweredPath {
  std::unique_ptr<Activity> (*make)(const LoweringSite& site) = nullptr;
  /// The same on the caller's stack, without an allocation. Null for a path with messages: the driver must end it (Driver::run).
  void (*run)(const LoweringSite& site, Driver& driver, const Call& call) = nullptr;
};
std::span<const Entry<LoweredPath>> lowerings();

}  // namespace paceline::comm
