#include "paceline/base/checksum.h"

#include <gtest/gtest.h>

#include <vector>

namespace paceline {
namespace {

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint32_t state = 1;
  for (auto& byte : bytes) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

// RFC 3720, B.4.
TEST(Crc32c, MatchesThePublishedVectors) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0x00})), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Crc32c, TheInstructionAndTheTablesAgreeAtEveryLengthAndOffset) {
  const auto bytes = pattern(300);
  for (std::size_t offset = 0; offset < 9; ++offset)
    for (std::size_t size = 0; size + offset <= bytes.size(); ++size) {
      const auto part = std::span(bytes).subspan(offset, size);
      ASSERT_EQ(crc32c(part), crc32c_portable(part)) << "offset " << offset << ", size " << size;
    }
}

TEST(Crc32c, PartsChainAndAFlippedBitShows) {
  auto bytes = pattern(100);
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const auto all = std::span<const std::byte>(bytes);
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), whole);
    EXPECT_EQ(crc32c_portable(all.subspan(cut), crc32c_portable(all.first(cut))), whole);
  }
  bytes[57] ^= std::byte{0x10};
  EXPECT_NE(crc32c(bytes), whole);
}

// What `xxhsum -H64` prints.
TEST(ContentHash, IsXxh64) {
  EXPECT_EQ(ContentHash().hex(), "ef46db3751d8e999");
  EXPECT_EQ(ContentHash().update("a").hex(), "d24ec4f1a98c6e5b");
  EXPECT_EQ(ContentHash().update("abc").hex(), "44bc2cf5ad770999");
  EXPECT_EQ(ContentHash().update("paceline trains deep networks on many workers, from C++").hex(), "606062162ac525ec");
}

TEST(ContentHash, DoesNotSeeHowTheBytesWereCut) {
  const auto bytes = pattern(200);
  const auto all = std::span<const std::byte>(bytes);
  for (std::size_t size : {0, 1, 31, 32, 33, 64, 100, 200}) {
    const auto whole = ContentHash().update(all.first(size)).digest();
    for (std::size_t piece : {1, 7, 32, 45}) {
      ContentHash hash;
      for (std::size_t at = 0; at < size; at += piece) {
        hash.update(all.subspan(at, std::min(piece, size - at)));
        hash.digest();  // looking does not change it
      }
      EXPECT_EQ(hash.digest(), whole) << size << " bytes in pieces of " << piece;
    }
  }
}

}  // namespace
}  // namespace paceline
