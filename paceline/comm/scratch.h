// Memory for data that arrives before it can be put in place. Pieces are reused, because the system hands out fresh memory page by page,
// which takes longer than filling it. At most the peak of what was in use at the same time is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace paceline::comm {

/// Not thread-safe. Outlives its pieces.
class Scratch {
 public:
  struct GiveBack {
    Scratch* to = nullptr;
    std::size_t bytes = 0;
    void operator()(std::byte* memory) const { to->unused_.emplace(bytes, memory); }
  };
  using Piece = std::unique_ptr<std::byte[], GiveBack>;

  /// At least this many bytes, uninitialised.
  Piece take(std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    auto found = unused_.lower_bound(size);
    if (found == unused_.end()) {
      if (!unused_.empty()) unused_.erase(std::prev(unused_.end()));  // the new one takes its place
      return {new std::byte[size], GiveBack{this, size}};
    }
    Piece piece(found->second.release(), GiveBack{this, found->first});
    unused_.erase(found);
    return piece;
  }

 private:
  std::multimap<std::size_t, std::unique_ptr<std::byte[]>> unused_;  // by size
};

}  // namespace paceline::comm
