// The parameter servers of a checkpoint, as those see them that resume from it: perhaps another number of servers, with other ranges.
//
// Together they hold every value of the arena, in the order of their ranges, so a range is found whoever held it. What a server knows
// besides (versions, counts, predictors) is much the same on all of them; where the ranges are others, it is taken from server 0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/step/state.h"

namespace paceline::central {

/// What the names of the only server's tensors begin with under a virtual clock.
inline constexpr const char* kClockPrefix = "ps.";
/// The same of a server and of a worker in a checkpoint of real workers (threads or processes).
std::string server_prefix(std::size_t server);
std::string worker_prefix(std::size_t worker);
/// A worker's tensors in the checkpoint, without the prefix; empty if it has none of that worker.
std::vector<step::NamedTensor> saved_worker(std::span<const step::NamedTensor> state, std::size_t worker);
/// The tensors of all workers in the checkpoint.
std::vector<step::NamedTensor> saved_workers(std::span<const step::NamedTensor> state);

/// Names in a checkpoint, after the server's prefix.
inline constexpr const char* kServerVersion = "version";
inline constexpr const char* kServerNumbers = "bookkeeping.numbers";
inline constexpr const char* kServerLedger = "bookkeeping.ledger";

/// The error for a tensor that is missing, or has another shape.
ConfigError no_matching(const std::string& name);

/// What one server finds in a checkpoint, which outlives it.
class SavedServer {
 public:
  /// The server whose names have this prefix, as it was. ConfigError if there is none.
  SavedServer(std::span<const step::NamedTensor> state, std::string prefix);
  /// For server `index` of those that divide the arena at `cuts`. ConfigError if the checkpoint has none of real workers.
  SavedServer(std::span<const step::NamedTensor> state, std::size_t index, const std::vector<std::int64_t>& cuts);

  /// Whether it has the range that it had, and so what its workers had in progress; otherwise they start over.
  bool same() const { return same_; }
  std::string name(const std::string& what) const { return prefixes_.front() + what; }

  std::int64_t version() const { return find(kServerVersion).item<std::int64_t>(); }
  /// What a server knows besides its range; undefined if it is missing.
  at::Tensor find(const std::string& what) const;
  /// `count` values: one for each parameter of the range. Undefined if it is missing, or has another length in the whole.
  at::Tensor range(const std::string& what, std::int64_t count) const;
  /// The names that begin like this, without the prefix.
  std::vector<std::string> names(const std::string& beginning) const;
  /// Whether it has all of a gradient that waits for an update.
  bool gathered(std::int64_t count) const;

 private:
  std::span<const step::NamedTensor> state_;
  std::vector<std::string> prefixes_;   // of the same server, or of all that together have the range
  std::int64_t begin_ = 0, whole_ = 0;  // unless same(): where the range begins, and the length of the arena
  bool same_ = true;
};

}  // namespace paceline::central
