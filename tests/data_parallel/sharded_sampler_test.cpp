// The sampler of a user's loop: every sample once an epoch, whoever takes it, and on from where it was saved.
#include "paceline/data_parallel/sharded_sampler.h"

#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <algorithm>
#include <sstream>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"

namespace paceline {
namespace {

TEST(ShardedSampler, SharesEverySampleAndShufflesEachEpochAnew) {
  auto group = comm::local_group(3);
  std::vector<std::size_t> seen, first;
  for (auto& comm : group) {
    ShardedSampler sampler(9, *comm);
    std::vector<std::size_t> share;
    while (const auto next = sampler.next(2)) share.insert(share.end(), next->begin(), next->end());
    if (comm->rank() == 0) first = share;
    seen.insert(seen.end(), share.begin(), share.end());
    sampler.reset();
    if (comm->rank() == 0) {
      EXPECT_NE(*sampler.next(3), first);
    }
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(ShardedSampler, GoesOnWhereItsStateWasSavedAndNowhereElse) {
  auto two = comm::local_group(2), four = comm::local_group(4);
  ShardedSampler sampler(100, *two[0]);
  sampler.reset(), sampler.next(40);
  std::stringstream stream;
  {
    torch::serialize::OutputArchive archive;
    sampler.save(archive);
    archive.save_to(stream);
  }
  const auto loaded = [&](ShardedSampler other) {
    std::stringstream again(stream.str());
    torch::serialize::InputArchive archive;
    archive.load_from(again);
    other.load(archive);
    return other;
  };
  EXPECT_EQ(*loaded(ShardedSampler(100, *two[0])).next(64), *sampler.next(64));
  EXPECT_THROW(loaded(ShardedSampler(100, *four[0])), ConfigError);
  EXPECT_THROW(loaded(ShardedSampler(99, *two[0])), ConfigError);
  EXPECT_THROW(loaded(ShardedSampler(100, *two[0], 7)), ConfigError);
}

}  // namespace
}  // namespace paceline
