// Checksums. crc32c protects what is written to files and sent over the network; ContentHash identifies a state, so that comparing two runs
// takes sixteen digits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace paceline {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78). A message may come in parts: crc32c(b, crc32c(a)) is that of a then b.
/// Uses the processor's instruction if it has one.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t before = 0);

/// The same with tables only, eight bytes at a time.
std::uint32_t crc32c_portable(std::span<const std::byte> data, std::uint32_t before = 0);

/// 64-bit hash of a stream of bytes: XXH64 with seed 0, so that `xxhsum -H64` prints the same for a file with these bytes.
/// It detects accidents, not attacks. How the bytes are divided among calls of update() does not matter.
class ContentHash {
 public:
  ContentHash& update(std::span<const std::byte> data);
  ContentHash& update(std::string_view text) { return update(bytes_of(text)); }

  std::uint64_t digest() const;  ///< of everything so far; more may follow
  std::string hex() const;       ///< the digest as sixteen lower-case digits

 private:
  static constexpr std::size_t kStripe = 32;  // four lanes of eight bytes

  void mix(const std::byte* stripe);

  static constexpr std::uint64_t kPrime1 = 0x9e3779b185ebca87, kPrime2 = 0xc2b2ae3d27d4eb4f;
  std::array<std::uint64_t, 4> lanes_ = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  std::array<std::byte, kStripe> tail_{};  // the bytes after the last whole stripe: total_ % kStripe of them
  std::uint64_t total_ = 0;
};

}  // namespace paceline
