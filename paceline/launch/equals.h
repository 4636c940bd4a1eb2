// Ranks that are equals: the first that fails ends the job for all.
#pragma once

#include "paceline/launch/attempt.h"

namespace paceline::launch {

class Equals final : public Attempt {
 public:
  using Attempt::Attempt;

 private:
  void judge(const std::vector<Rank*>& ended) override;
  Ending ending() const override;

  const Rank* cause_ = nullptr;  // who failed first
};

}  // namespace paceline::launch
