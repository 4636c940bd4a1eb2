// Random numbers that vectorise: a hash of a counter, 16 bits for each element.
//
// A draw is a pure function of (seed, rank, step, place) and of the element's index, in 32-bit integer arithmetic only: the same bits on
// every processor and for every vector width. The hash takes a Weyl sequence and mixes it in two rounds of xor-shift and multiply, the
// second of which is also keyed; the keys come from the run's Philox streams. In tiles of 64 elements, two elements at a distance of 32
// share a word, so that one hash serves both without moving data between lanes.
#pragma once

#include <cstdint>

#include "paceline/base/random.h"
#include "paceline/base/simd.h"
#include "paceline/compress/compressor.h"

namespace paceline::compress {

class Draws {
 public:
  explicit Draws(const CodingContext& context) {
    RandomStream worker(context.seed, Purpose::compress, static_cast<std::uint64_t>(context.rank),
                        static_cast<std::uint64_t>(context.step));
    RandomStream range(worker.next_u64(), Purpose::compress, context.place);
    start_ = range.next_u32();
    key_ = range.next_u32();
  }

  /// The draws of elements starting at `begin`, with indices that start at 0.
  [[gnu::always_inline]] Draws from(std::int64_t begin) const {
    Draws later = *this;
    later.start_ += static_cast<std::uint32_t>(begin) * kStride;
    later.key_ ^= static_cast<std::uint32_t>(static_cast<std::uint64_t>(begin) >> 32) * 0x85ebca6bu;
    return later;
  }

  std::uint32_t start() const { return start_; }
  std::uint32_t key() const { return key_; }

  /// Word `index` of the sequence: 32 bits.
  [[gnu::always_inline]] std::uint32_t word(std::uint32_t index) const { return mixed(start_ + index * kStride); }

  /// Calls body(i, draw), with a draw of 0 … 65535, for every 0 ≤ i < n; calls with different i must touch different elements.
  template <class Body>
  [[gnu::always_inline]] void for_each(std::int64_t n, const Body& body) const {
    constexpr int kHalf = 32;  // of a tile
    std::int64_t i = 0;
    for (; i + 2 * kHalf <= n; i += 2 * kHalf) {
      std::uint32_t weyl = start_ + static_cast<std::uint32_t>(i / 2) * kStride;
#pragma GCC ivdep
      for (int k = 0; k < kHalf; ++k) {
        const std::uint32_t word = mixed(weyl);
        weyl += kStride;
        body(i + k, word & 0xffffu);
        body(i + k + kHalf, word >> 16);
      }
    }
    for (std::int64_t k = 0; i + k < n; ++k) {
      const std::uint32_t drawn = word(static_cast<std::uint32_t>(i / 2 + k % kHalf));
      body(i + k, k < kHalf ? drawn & 0xffffu : drawn >> 16);
    }
  }

 private:
  static constexpr std::uint32_t kStride = 0x9e3779b1u;  // odd, near 2³² divided by the golden ratio

  [[gnu::always_inline]] std::uint32_t mixed(std::uint32_t x) const {
    x = (x ^ (x >> 15)) * 0x85ebca77u;
    x = (x ^ key_ ^ (x >> 13)) * 0xc2b2ae3du;
    return x ^ (x >> 16);
  }

  std::uint32_t start_, key_;
};

}  // namespace paceline::compress
