// Who holds which elements of an arena: all ranks of an axis, or one of them.
//
// What sharded updates, ZeRO and checkpoints do is then a statement about ranges. Optimizer state that is owned is allocated by its owner
// alone; who owns the result of a reduction decides which collective makes it; an owner writes its ranges into a checkpoint.
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

/// Ascending ranges without a gap, from 0 on; neighbours of one owner are one range.
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

/// Where the ranges that one rank holds lie in memory that has room for them alone, one behind the other. Each keeps its offset from a
/// multiple of `alignment`, so that it lies in its cache lines as it does in the arena.
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
  /// What it holds of [begin, end), cut to it.
  std::vector<Held> within(std::int64_t begin, std::int64_t end) const;

 private:
  std::vector<Held> held_;
  std::int64_t length_ = 0;
};

}  // namespace paceline::tensor
