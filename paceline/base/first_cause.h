// Of the errors of ranks that worked together: the one to report.
#pragma once

#include <exception>
#include <span>

#include "paceline/base/error.h"

namespace paceline {

/// What went wrong by itself, rather than because a peer was gone; null where nothing did.
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
