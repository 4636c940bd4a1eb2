// The paths that execute a schedule in one pass, on memory that the ranks of a host share (schedule::Lowering). One row for each algorithm
// that declares a lowering; everything else is executed step by step (step_runner.h).
//
// Invariant: a path performs the additions of its schedule in the schedule's order, so that it gives the schedule's bits, and sends the
// schedule's messages between hosts. tests/comm/lowering_test.cpp holds both against the steps.
#pragma once

#include "paceline/base/registry.h"
#include "paceline/comm/activity.h"
#include "paceline/comm/scratch.h"
#include "paceline/comm/shared/group.h"

namespace paceline::comm {

struct LoweringSite {
  Transport& transport;
  Scratch& scratch;
  shared::Group& host;  // the ranks of this host
  const Operation& operation;
  const schedule::Problem& problem;  // one that the lowering covers
  std::int64_t sequence;
  Tag first_tag;  // of Hierarchical::kLanes tags
};

using Lower = std::unique_ptr<Activity> (*)(const LoweringSite& site);
std::span<const Entry<Lower>> lowerings();

}  // namespace paceline::comm
