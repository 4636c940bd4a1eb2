// The all-to-all: send to rank r+k, receive from rank r−k, for k = 1 … p−1. In each such exchange every rank sends and receives one part,
// so no receiver is overloaded.
#pragma once

#include "paceline/schedule/step_list.h"

namespace paceline::schedule {

/// Exchange k belongs to round (k − 1)·spacing: 1 for one after the other, 0 for all at once.
inline void rotation_pass(StepList& list, const Problem& problem, int spacing) {
  const auto part_of = parts(problem);
  list.add(Step::Kind::copy, problem.rank, part_of(problem.rank));
  for (int k = 1; k < problem.size; ++k) {
    const int to = (problem.rank + k) % problem.size, from = (problem.rank - k + problem.size) % problem.size;
    list.round((k - 1) * spacing).add(Step::Kind::give, to, part_of(to));
    list.receive(from, part_of(from));
  }
}

}  // namespace paceline::schedule
