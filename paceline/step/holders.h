// Processes that hold part of a run's state and are not among its Trainer's workers: the servers and workers of a parameter server. The
// Trainer's process leads. It gives the others orders, which are texts, and they answer (train/other_parts.h and train/part_holder.h are
// the two sides).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace paceline::step {

class Holders {
 public:
  struct Range {
    std::int64_t begin = 0, end = 0;  // of the arena
  };

  virtual ~Holders() = default;

  /// The part of the parameters that the leader itself holds.
  virtual Range own_range() const = 0;
  /// While nothing is in flight: brings the module's own range and its statistics up to date, and returns who else holds something, for
  /// messages: "server 1", "worker 0". They are the holders until the next call.
  virtual std::vector<std::string> roll_call() = 0;
  /// Gives orders[i] to the i-th of them; none where it is empty. Answers to earlier orders are forgotten.
  virtual void give(std::span<const std::string> orders) = 0;
  /// The answers so far, by holder; an empty one from a holder that is gone. `wait`: for all of them. PeerError if one does not answer.
  virtual std::vector<std::optional<std::string>> answers(bool wait) = 0;
};

}  // namespace paceline::step
