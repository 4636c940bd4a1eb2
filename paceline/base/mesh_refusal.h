// A mesh of ranks that is refused, with advice that a caller may replace because it knows more of the run.
#pragma once

#include <string>
#include <utility>

#include "paceline/base/error.h"

namespace paceline {

/// Another mesh is accepted. The message is the problem, which ends just before a remedy ("…; use "), and the remedy.
class MeshRefusal : public ConfigError {
 public:
  MeshRefusal(std::string problem, const std::string& remedy) : ConfigError(problem + remedy), problem_(std::move(problem)) {}
  const std::string& problem() const { return problem_; }

 private:
  std::string problem_;
};

}  // namespace paceline
