// A job without parameter servers: the first rank that fails ends the job for all. It has often only noticed the failure: if the ranks
// blame another one, that one is named.
#pragma once

#include "paceline/launch/attempt.h"

namespace paceline::launch {

class RanksAttempt final : public Attempt {
 public:
  using Attempt::Attempt;

 private:
  void judge(const std::vector<Rank*>& ended) override;
  Ending ending() const override;

  void give_up_silent();
  void note_given_up(const std::vector<Rank*>& ended);
  /// The rank that the others blame, if any, unless it ended successfully.
  const Rank* blamed() const;

  const Rank* cause_ = nullptr;  // the one that failed first
};

}  // namespace paceline::launch
