// Who holds which elements of an arena: all ranks of an axis, or one of them.
//
// Sharded updates, ZeRO and checkpoints then follow from ranges: owned optimizer state is allocated only by its owner; the owner of a
// reduction's result decides which collective is used; an owner writes its ranges into a checkpoint.
#pragma once

#include <cstdint>
#include <vector>

namespace paceline::tensor {

inline constexpr int kEverybody = -1;

/// Elements [begin, end) of an arena and the rank that holds them.
struct OwnedRange {
  std::int64_t begin = 0, end = 0;
  int owner = kEverybody;

  std::int64_t count() const { return end - begin; }
  bool held_by(int rank) const { return owner == kEverybody || owner == rank; }
  bool operator==(const OwnedRange&) const = default;
};

/// Ascending ranges without gaps, starting at 0; neighbouring ranges have different owners.
class Owners {
 public:
  Owners() = default;
  explicit Owners(std::int64_t length) : Owners(std::vector<OwnedRange>{{0, length, kEverybody}}) {}
  explicit Owners(const std::vector<OwnedRange>& ranges);

  const std::vector<OwnedRange>& ranges() const { return ranges_; }
  std::int64_t length() const { return ranges_.empty() ? 0 : ranges_.back().end; }
  int of(std::int64_t element) const;
  /// The ranges of [begin, end), cut to it.
  std::vector<OwnedRange> within(std::int64_t begin, std::int64_t end) const;
  /// Whether all ranks hold all of [begin, end).
  bool shared(std::int64_t begin, std::int64_t end) const;
  bool shared() const { return shared(0, length()); }
  bool operator==(const Owners&) const = default;

 private:
  std::vector<OwnedRange> ranges_;
};

/// The layout of the ranges that one rank holds, one after the other in memory of their own. Each keeps its offset from a multiple of
/// `alignment`, so that it has the same position in its cache lines as in the arena.
class Shard {
 public:
  struct Held {
    std::int64_t begin = 0, end = 0;  // in the arena
    std::int64_t place = 0;           // in the shard
  };

  Shard() = default;
  Shard(const Owners& owners, int rank, std::int64_t alignment);

  const std::vector<Held>& held() const { return held_; }
  std::int64_t length() const { return length_; }  // elements of the memory
  /// The parts of [begin, end) that it holds.
  std::vector<Held> within(std::int64_t begin, std::int64_t end) const;

 private:
  std::vector<Held> held_;
  std::int64_t length_ = 0;
};

}  // namespace paceline::tensor
