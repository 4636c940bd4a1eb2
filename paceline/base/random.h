// Independent random streams, named by (seed, purpose, rank, epoch).
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a counter-based generator, so that a
// stream needs no warm-up, has no state beyond its position, and any draw can be reached at once. Nothing in Paceline draws
// from a global generator: code that needs random numbers creates the stream of its purpose. So any run repeats bit for bit,
// and a resumed run needs no saved generator.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace paceline {

/// What a stream is for; each purpose gets numbers unrelated to every other's. Append only: the values are part of a run's bits.
enum class Purpose : std::uint32_t {
  init = 1,
  shuffle = 2,
  augment = 3,
  dropout = 4,
  data = 5,
  delay = 6,
  compress = 7,
  test = 8,
  gossip = 9,
  failure = 10
};

/// One Philox block: four 32-bit words from a 128-bit counter and a 64-bit key.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

class RandomStream {
 public:
  using result_type = std::uint32_t;

  /// `rank` distinguishes the streams of one purpose: a worker, a sample, a parameter.
  RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t rank = 0, std::uint64_t epoch = 0);

  std::uint32_t next_u32();
  std::uint64_t next_u64();
  float uniform();                           ///< [0, 1), 24 bits
  double uniform_double();                   ///< [0, 1), 53 bits
  float uniform(float low, float high);      ///< [low, high)
  float normal();                            ///< mean 0, deviation 1 (Box–Muller)
  std::uint64_t below(std::uint64_t bound);  ///< 0 … bound−1, every value equally likely; bound > 0

  /// Fisher–Yates.
  template <class T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

  std::uint64_t position() const { return position_; }  ///< 32-bit draws so far
  void seek(std::uint64_t position);

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return 0xffffffffu; }
  result_type operator()() { return next_u32(); }

 private:
  void refill();

  std::array<std::uint32_t, 2> key_{};
  std::uint64_t lane_ = 0;      // the upper half of the counter: rank and epoch, mixed
  std::uint64_t position_ = 0;  // the lower half is position_ / 4
  std::array<std::uint32_t, 4> block_{};
};

}  // namespace paceline
