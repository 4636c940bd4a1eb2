// What servers find in a checkpoint that others wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "paceline/base/error.h"
#include "paceline/central/saved_servers.h"
#include "tests/message_of.h"

namespace paceline::central {
namespace {

using testing::HasSubstr;

/// Two servers with the values 0 … 4 and 5 … 9.
std::vector<step::NamedTensor> two_servers() {
  std::vector<step::NamedTensor> state;
  for (std::size_t i = 0; i < 2; ++i) {
    state.push_back({server_prefix(i) + kServerNumbers, at::zeros({3}, at::kLong)});
    state.push_back({server_prefix(i) + kServerVersion, at::full({1}, static_cast<std::int64_t>(7 + i), at::kLong)});
    state.push_back({server_prefix(i) + "optim.momentum", at::arange(5, at::kFloat) + 5.0 * static_cast<double>(i)});
  }
  state.push_back({server_prefix(0) + "statistics", at::ones({2})});
  return state;
}

TEST(SavedServer, HasTheRangeThatItHad) {
  const auto state = two_servers();
  const SavedServer second(state, 1, {0, 5, 10});
  EXPECT_TRUE(second.same());
  EXPECT_EQ(second.version(), 8);
  EXPECT_TRUE(at::equal(second.range("optim.momentum", 5), at::arange(5, 10, at::kFloat)));
  EXPECT_FALSE(second.range("optim.momentum", 4).defined());
  EXPECT_FALSE(second.find("statistics").defined());
}

TEST(SavedServer, FindsAnotherRangeWhoeverHeldIt) {
  const auto state = two_servers();
  const std::vector<std::int64_t> cuts = {0, 3, 7, 10};
  for (std::size_t i = 0; i < 3; ++i) {
    const SavedServer one(state, i, cuts);
    EXPECT_FALSE(one.same());
    EXPECT_EQ(one.version(), 7) << "server 0's";
    EXPECT_TRUE(one.find("statistics").defined());
    EXPECT_TRUE(at::equal(one.range("optim.momentum", cuts[i + 1] - cuts[i]), at::arange(cuts[i], cuts[i + 1], at::kFloat))) << i;
    EXPECT_FALSE(one.range("optim.moment1", cuts[i + 1] - cuts[i]).defined());
  }
  EXPECT_TRUE(at::equal(SavedServer(state, 0, {0, 10}).range("optim.momentum", 10), at::arange(10, at::kFloat)));
}

TEST(SavedServer, OfAnotherModelHasNothing) {
  const auto state = two_servers();
  EXPECT_FALSE(SavedServer(state, 0, {0, 11}).range("optim.momentum", 11).defined());
  EXPECT_FALSE(SavedServer(state, 0, {0, 9}).range("optim.momentum", 9).defined());
  auto lacks = two_servers();
  std::erase_if(lacks, [](const step::NamedTensor& item) { return item.name == server_prefix(1) + "optim.momentum"; });
  EXPECT_FALSE(SavedServer(lacks, 0, {0, 10}).range("optim.momentum", 10).defined());
}

TEST(SavedServer, OfAnotherExecutorIsRefused) {
  const auto real = two_servers();
  const std::vector<step::NamedTensor> clock = {{std::string(kClockPrefix) + kServerNumbers, at::zeros({3}, at::kLong)}};
  EXPECT_THAT(message_of<ConfigError>([&] { SavedServer(real, kClockPrefix); }), HasSubstr("ps.executor"));
  EXPECT_THAT(message_of<ConfigError>([&] { SavedServer(clock, 0, {0, 10}); }), HasSubstr("ps.executor"));
  EXPECT_THAT(message_of<ConfigError>([&] { SavedServer({}, 0, {0, 10}); }), HasSubstr(kServerNumbers));
}

}  // namespace
}  // namespace paceline::central
