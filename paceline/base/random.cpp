#include "paceline/base/random.h"

#include <cmath>
#include <numbers>

namespace paceline {
namespace {

// SplitMix64's finaliser: turns structured input (seed 1, 2, 3; rank 0, 1, 2) into unrelated keys.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

RandomStream::RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t rank, std::uint64_t epoch) {
  const std::uint64_t key = mix(mix(seed) ^ static_cast<std::uint64_t>(purpose));
  key_ = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
  lane_ = mix(mix(rank) ^ mix(epoch + 0x51ed270b0a1f2d3cu));
}

void RandomStream::refill() {
  const std::uint64_t index = position_ / 4;
  block_ = philox({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), static_cast<std::uint32_t>(lane_),
                   static_cast<std::uint32_t>(lane_ >> 32)},
                  key_);
}

void RandomStream::seek(std::uint64_t position) {
  position_ = position;
  if (position_ % 4 != 0) refill();
}

std::uint32_t RandomStream::next_u32() {
  if (position_ % 4 == 0) refill();
  return block_[position_++ % 4];
}

std::uint64_t RandomStream::next_u64() {
  const std::uint64_t low = next_u32();
  return low | (std::uint64_t{next_u32()} << 32);
}

float RandomStream::uniform() { return static_cast<float>(next_u32() >> 8) * 0x1p-24f; }

double RandomStream::uniform_double() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }

float RandomStream::uniform(float low, float high) { return low + (high - low) * uniform(); }

float RandomStream::normal() {
  // 1 - u lies in (0, 1], so the logarithm is finite.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform_double()));
  return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * uniform_double()));
}

std::uint64_t RandomStream::below(std::uint64_t bound) {
  // Draws under 2^64 mod bound would favour small results: draw those again.
  const std::uint64_t reject_below = (0 - bound) % bound;
  std::uint64_t draw = next_u64();
  while (draw < reject_below) draw = next_u64();
  return draw % bound;
}

}  // namespace paceline
