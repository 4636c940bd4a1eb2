// Ranks that are equals: the first that fails ends the job for all. The first to end is often one that noticed: whom the ranks blame is
// named, as long as they do.
#pragma once

#include "paceline/launch/attempt.h"

namespace paceline::launch {

class Equals final : public Attempt {
 public:
  using Attempt::Attempt;

 private:
  void judge(const std::vector<Rank*>& ended) override;
  Ending ending() const override;

  void give_up_silent();
  void note_given_up(const std::vector<Rank*>& ended);
  /// Whom the ranks blame, where they do and it has not ended well.
  const Rank* blamed() const;

  const Rank* cause_ = nullptr;  // who failed first
};

}  // namespace paceline::launch
