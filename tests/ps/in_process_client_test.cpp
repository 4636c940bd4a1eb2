// The client of a worker that shares its server's process.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "paceline/ps/client.h"
#include "paceline/ps/concurrent_server.h"
#include "tests/ps/admissions.h"
#include "tests/ps/small_concurrent.h"

namespace paceline::ps {
namespace {

TEST(InProcessClient, SpreadsTheArenaOverItsHosts) {
  constexpr int kWorkers = 3, kSteps = 60;
  constexpr std::int64_t kLength = 1'001;
  const std::vector<std::int64_t> cuts = {0, 320, 640, kLength};
  std::vector<std::shared_ptr<ConcurrentServer>> concurrents;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
    concurrents.push_back(std::make_shared<ConcurrentServer>(make_server(with("asp"), kWorkers, kLength, cuts[i], cuts[i + 1]),
                                                             ConcurrentServer::Limits{}, steady_clock()));
  at_once(kWorkers, [&](int worker) {
    const auto client = make_in_process_client(concurrents, cuts, worker);
    Floats values(kLength);
    for (int step = 0; step < kSteps; ++step) {
      client->pull(values.data(), 1);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 5) * 0.25f;
      EXPECT_EQ(client->push(values.data(), {.rate = 1}), applied(1));
      EXPECT_FALSE(client->cancelled());
    }
  });
  Floats all, expected(kLength);
  for (const auto& concurrent : concurrents) std::ranges::copy(parameters_of(*concurrent), std::back_inserter(all));
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = -kWorkers * kSteps * 0.25f * static_cast<float>(i % 5);
  EXPECT_EQ(all, expected);
  for (const auto& concurrent : concurrents) EXPECT_FALSE(concurrent->may_pull(0)) << "clients leave when they go";
}

TEST(InProcessClient, FreesTheOthersWhenItGoes) {
  std::vector<std::shared_ptr<ConcurrentServer>> concurrents = {
      std::make_shared<ConcurrentServer>(make_server(with("bsp"), 2, 8), ConcurrentServer::Limits{}, steady_clock())};
  auto stays = make_in_process_client(concurrents, {0, 8}, 0), goes = make_in_process_client(concurrents, {0, 8}, 1);
  Floats values(8);
  stays->pull(values.data(), 1), goes->pull(nullptr, 1);
  std::ranges::fill(values, 1);
  stays->push(values.data(), {.rate = 1});
  {
    const std::jthread waiting([&] { stays->pull(values.data(), 1); });
    goes.reset();
  }
  EXPECT_EQ(values, Floats(8, -1));
}

}  // namespace
}  // namespace paceline::ps
