// Memory that processes of a host share.
#include "paceline/comm/shared/process_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "paceline/base/error.h"
#include "paceline/comm/shared/group.h"
#include "paceline/comm/shared/shared_endpoint.h"

namespace paceline::comm::shared {
namespace {

std::shared_ptr<HostMemory> memory_of_one() {
  const Exchange alone = [](const std::string& own) { return std::vector<std::string>{own}; };
  return meet_neighbours(0, alone, [](int) { return 0; }).memory;
}

// A split takes a block, and a run may split as often as it likes.
TEST(ProcessMemory, UsesABlockAgainOnceAllRanksAreOutOfIt) {
  const auto memory = memory_of_one();
  const std::int64_t bytes = Block::bytes(2);
  const Location first = memory->allocate_block(bytes, 2);
  std::optional<Group> ranks[2];
  for (int rank = 0; rank < 2; ++rank) ranks[rank].emplace(rank, std::vector<int>{0, 0}, 2, memory, memory->address(first));
  std::fill_n(ranks[1]->block().window(1), kWindow, std::byte{1});
  ranks[0].reset();
  EXPECT_NE(memory->allocate_block(bytes, 2).offset, first.offset);  // rank 1 may still look at it
  EXPECT_EQ(ranks[1]->gone(0), kLeft);
  ranks[1].reset();
  const Location again = memory->allocate_block(bytes, 2);
  EXPECT_EQ(again.offset, first.offset);
  const std::byte* block = memory->address(again);
  EXPECT_TRUE(std::all_of(block, block + bytes, [](std::byte each) { return each == std::byte{0}; }));
}

// Spinning, and a helper beside its rank, need cores: of those that the ranks may use, not of the machine.
TEST(Group, SpinsWhereEveryRankHasACore) {
  const auto memory = memory_of_one();
  for (const int cores : {1, 2, 3, 4}) {
    const Group group(0, {0, 0}, cores, memory, memory->address(memory->allocate_block(Block::bytes(2), 2)));
    EXPECT_EQ(group.spins() > 0, cores >= 2) << cores;
    EXPECT_EQ(group.has_core_for_helper(), cores >= 4) << cores;
  }
}

// Every rank maps all files: 47 bits of addresses must hold them beside everything else.
TEST(ProcessMemory, FitsIntoTheAddressesOfAProcessWithManyRanks) {
  constexpr std::int64_t kTebibyte = std::int64_t{1} << 40;
  for (const int ranks : {1, 2, 100, 128, 512}) EXPECT_LT(reserved_bytes(4 * kTebibyte, ranks) * ranks, 64 * kTebibyte) << ranks;
  EXPECT_GE(reserved_bytes(4 * kTebibyte, 512), 1 << 30);
  EXPECT_EQ(reserved_bytes(1 << 30, 4), 1 << 30);
}

TEST(ProcessMemory, SaysHowMuchThereIsWhereMoreIsAskedFor) {
  const auto memory = memory_of_one();
  try {
    memory->allocate(std::int64_t{1} << 46);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("MiB that each of 1 rank has on this host; choose a smaller model"));
  }
}

// A block for all ranks, and for each host one that grows with its own ranks alone.
TEST(SharedEndpoint, TakesMemoryForTheRanksOfEachHost) {
  EXPECT_EQ(SharedEndpoint::block_bytes({0, 0, 0}), Block::bytes(3));
  EXPECT_EQ(SharedEndpoint::block_bytes({1, 0, 1, 0, 2}), Block::bytes(5) + 2 * Block::bytes(2) + Block::bytes(1));
}

}  // namespace
}  // namespace paceline::comm::shared
