// Who holds which range of an arena, and where that lies in memory for one rank alone.
#include "paceline/tensor/owners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/tensor/arena.h"

namespace paceline::tensor {
namespace {

using testing::ElementsAre;

const Owners kMixed(std::vector<OwnedRange>{{0, 10, 0}, {10, 10, 1}, {10, 30, 1}, {30, 40, 1}, {40, 64, kEverybody}});

TEST(Owners, JoinNeighboursAndLeaveNoGap) {
  EXPECT_THAT(kMixed.ranges(), ElementsAre(OwnedRange{0, 10, 0}, OwnedRange{10, 40, 1}, OwnedRange{40, 64, kEverybody}));
  EXPECT_EQ(kMixed.length(), 64);
  EXPECT_THROW(Owners(std::vector<OwnedRange>{{0, 4, 0}, {5, 6, 1}}), InternalError);
  EXPECT_THROW(Owners(std::vector<OwnedRange>{{0, 4, 0}, {3, 6, 1}}), InternalError);
}

TEST(Owners, SayWhoHoldsWhat) {
  EXPECT_EQ(kMixed.of(9), 0);
  EXPECT_EQ(kMixed.of(10), 1);
  EXPECT_EQ(kMixed.of(63), kEverybody);
  EXPECT_THROW(kMixed.of(64), InternalError);
  EXPECT_THAT(kMixed.within(5, 45), ElementsAre(OwnedRange{5, 10, 0}, OwnedRange{10, 40, 1}, OwnedRange{40, 45, kEverybody}));
  EXPECT_THAT(kMixed.within(12, 20), ElementsAre(OwnedRange{12, 20, 1}));
  EXPECT_TRUE(kMixed.shared(40, 64));
  EXPECT_FALSE(kMixed.shared(39, 64));
  EXPECT_TRUE(Owners(7).shared());
}

TEST(Shard, HasRoomForWhatItsRankHoldsInItsCacheLines) {
  for (int rank = 0; rank < 3; ++rank) {
    const Shard shard(kMixed, rank, Arena::kAlignment);
    std::int64_t held = 0, end = 0;
    for (const Shard::Held& range : shard.held()) {
      EXPECT_EQ((range.place - range.begin) % Arena::kAlignment, 0);
      EXPECT_GE(range.place, end) << "ranges do not overlap";
      end = range.place + range.end - range.begin;
      held += range.end - range.begin;
    }
    EXPECT_EQ(held, (rank == 0 ? 10 : rank == 1 ? 30 : 0) + 24);
    EXPECT_EQ(shard.length(), end);
    EXPECT_LT(shard.length(), held + 2 * Arena::kAlignment);
  }
  const Shard shard(kMixed, 0, Arena::kAlignment);
  ASSERT_EQ(shard.within(5, 50).size(), 2u);
  EXPECT_EQ(shard.within(5, 50)[0].place, 5);
  EXPECT_EQ(shard.within(5, 50)[1].begin, 40);
  EXPECT_EQ(shard.within(5, 50)[1].end, 50);
  EXPECT_TRUE(shard.within(10, 40).empty());
  EXPECT_EQ(Shard(Owners(64), 2, Arena::kAlignment).length(), 64) << "what everybody holds lies as it does in the arena";
}

TEST(Arena, HasADtypeAndOwnersByRole) {
  Arena::Options options;
  options.tensor = at::TensorOptions().dtype(at::kBFloat16);
  Arena arena({{"a", {3, 4}}, {"b", {5}}}, options);
  EXPECT_EQ(arena.dtype(Role::parameter), at::kBFloat16);
  EXPECT_EQ(arena.dtype(Role::master), at::kFloat);
  EXPECT_TRUE(arena.owners(Role::moment).shared());
  arena.set_owners(Role::moment, Owners(std::vector<OwnedRange>{{0, 7, 0}, {7, arena.length(), 1}}));
  EXPECT_TRUE(arena.owners(Role::gradient).shared()) << "each role has owners of its own";
  const at::Tensor moments = arena.allocate(Role::moment, arena.shard(Role::moment, 0));
  EXPECT_EQ(moments.scalar_type(), at::kFloat);
  EXPECT_EQ(moments.numel(), 7) << "memory for what is held, and no more";
  EXPECT_THROW(arena.set_owners(Role::moment, Owners(7)), InternalError);
}

}  // namespace
}  // namespace paceline::tensor
