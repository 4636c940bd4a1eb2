// Chooses, among the errors of ranks that worked together, the one to report.
#pragma once

#include <exception>
#include <span>

#include "paceline/base/error.h"

namespace paceline {

/// The error that is not a consequence of a lost peer; null if there is none.
inline std::exception_ptr first_cause(std::span<const std::exception_ptr> problems) {
  std::exception_ptr first;
  for (const std::exception_ptr& problem : problems) {
    if (!problem) continue;
    try {
      std::rethrow_exception(problem);
    } catch (const PeerError&) {
      if (!first) first = problem;
    } catch (...) {
      return problem;
    }
  }
  return first;
}

}  // namespace paceline
