#include "paceline/base/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace paceline {
namespace {

template <class Word>
Word load(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// kTables[k][b]: the remainder of byte b followed by k zero bytes. With eight tables, a step of independent lookups takes eight bytes.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t rest = b;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ (rest & 1 ? 0x82f63b78u : 0u);
    tables[0][b] = rest;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t b = 0; b < 256; ++b) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  return tables;
}();

// The CRC instruction, on one word or one byte, and whether this processor has it. The rest of the program is compiled for the oldest
// processor of its kind, so these two functions have their own target attribute, and support is detected at run time.
#if defined(__aarch64__)
#define PACELINE_CRC_TARGET __attribute__((target("+crc")))
PACELINE_CRC_TARGET inline std::uint32_t crc_word(std::uint32_t crc, std::uint64_t word) { return __crc32cd(crc, word); }
PACELINE_CRC_TARGET inline std::uint32_t crc_byte(std::uint32_t crc, std::uint8_t byte) { return __crc32cb(crc, byte); }
bool has_crc_instruction() { return (getauxval(AT_HWCAP) & (1UL << 7)) != 0; }  // HWCAP_CRC32
#elif defined(__x86_64__)
#define PACELINE_CRC_TARGET __attribute__((target("sse4.2")))
PACELINE_CRC_TARGET inline std::uint32_t crc_word(std::uint32_t crc, std::uint64_t word) {
  return static_cast<std::uint32_t>(_mm_crc32_u64(crc, word));
}
PACELINE_CRC_TARGET inline std::uint32_t crc_byte(std::uint32_t crc, std::uint8_t byte) { return _mm_crc32_u8(crc, byte); }
bool has_crc_instruction() { return __builtin_cpu_supports("sse4.2"); }
#endif

#ifdef PACELINE_CRC_TARGET
PACELINE_CRC_TARGET std::uint32_t crc32c_instruction(std::span<const std::byte> data, std::uint32_t before) {
  std::uint32_t crc = ~before;
  for (; data.size() >= 8; data = data.subspan(8)) crc = crc_word(crc, load<std::uint64_t>(data.data()));
  for (std::byte byte : data) crc = crc_byte(crc, static_cast<std::uint8_t>(byte));
  return ~crc;
}
#endif

constexpr std::uint64_t kPrime3 = 0x165667b19e3779f9, kPrime4 = 0x85ebca77c2b2ae63, kPrime5 = 0x27d4eb2f165667c5;

}  // namespace

std::uint32_t crc32c_portable(std::span<const std::byte> data, std::uint32_t before) {
  std::uint32_t crc = ~before;
  for (; data.size() >= 8; data = data.subspan(8)) {
    const std::uint64_t word = load<std::uint64_t>(data.data()) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (std::byte byte : data) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint32_t>(byte)) & 0xff];
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t before) {
#ifdef PACELINE_CRC_TARGET
  static const bool fast = has_crc_instruction();
  if (fast) return crc32c_instruction(data, before);
#endif
  return crc32c_portable(data, before);
}

void ContentHash::mix(const std::byte* stripe) {
  for (std::size_t i = 0; i < lanes_.size(); ++i)
    lanes_[i] = std::rotl(lanes_[i] + load<std::uint64_t>(stripe + 8 * i) * kPrime2, 31) * kPrime1;
}

ContentHash& ContentHash::update(std::span<const std::byte> data) {
  if (data.empty()) return *this;
  const std::size_t filled = total_ % kStripe;
  total_ += data.size();
  if (filled > 0) {
    const std::size_t taken = std::min(kStripe - filled, data.size());
    std::memcpy(tail_.data() + filled, data.data(), taken);
    data = data.subspan(taken);
    if (filled + taken < kStripe) return *this;
    mix(tail_.data());
  }
  for (; data.size() >= kStripe; data = data.subspan(kStripe)) mix(data.data());
  std::copy(data.begin(), data.end(), tail_.begin());
  return *this;
}

std::uint64_t ContentHash::digest() const {
  std::uint64_t hash = kPrime5;
  if (total_ >= kStripe) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
    for (std::uint64_t lane : lanes_) hash = (hash ^ (std::rotl(lane * kPrime2, 31) * kPrime1)) * kPrime1 + kPrime4;
  }
  hash += total_;

  const std::byte* at = tail_.data();
  const std::byte* const end = at + total_ % kStripe;
  for (; end - at >= 8; at += 8) {
    hash ^= std::rotl(load<std::uint64_t>(at) * kPrime2, 31) * kPrime1;
    hash = std::rotl(hash, 27) * kPrime1 + kPrime4;
  }
  if (end - at >= 4) {
    hash = std::rotl(hash ^ (load<std::uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at < end; ++at) hash = std::rotl(hash ^ (static_cast<std::uint64_t>(*at) * kPrime5), 11) * kPrime1;

  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::string ContentHash::hex() const { return fmt::format("{:016x}", digest()); }

}  // namespace paceline
