// Synchronous updates do not depend on who comes first.
#include "paceline/ps/round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "paceline/base/random.h"
#include "paceline/ps/server.h"

namespace paceline::ps {
namespace {

using Floats = std::vector<float>;
constexpr std::int64_t kLength = 33, kNorms = 5;
constexpr int kWorkers = 4;

std::unique_ptr<Server> synchronous(const std::string& consistency = "bsp", bool keeps_previous = false) {
  PsConfig config;
  config.rule = "average", config.consistency = consistency, config.group = kWorkers, config.norm_share = 0.25;
  Server::Setup setup;
  setup.segments = {{0, kLength}}, setup.length = setup.end = kLength, setup.workers = kWorkers, setup.statistics = kNorms;
  setup.keeps_previous = keeps_previous;
  return std::make_unique<Server>(config, optim::OptimConfig{.name = "sgd", .momentum = 0.9}, setup);
}

Floats random(std::int64_t count, std::int64_t number, std::uint64_t what) {
  Floats values(static_cast<std::size_t>(count));
  RandomStream stream(what, Purpose::test, static_cast<std::uint64_t>(number));
  for (float& value : values) value = stream.uniform(-1, 1);
  return values;
}

void report(Server& server, int worker, std::int64_t number) {
  const Floats norms = random(kNorms, number, 1);
  server.report(worker, {.loss = 1, .number = number}, norms.data());
}

Admission push(Server& server, int worker, std::int64_t number) {
  Floats gradient = random(kLength, number, 2);
  return server.push(worker, gradient.data(), {.rate = 0.01f * static_cast<float>(number), .loss = 1, .number = number});
}

void pull(Server& server, int worker) {
  Floats into(kLength);
  server.pull(worker, into.data(), 0.1f);
}

/// Parameters, then statistics.
Floats result_of(Server& server) {
  Floats all(server.parameters(), server.parameters() + kLength);
  all.insert(all.end(), server.statistics(), server.statistics() + kNorms);
  return all;
}

/// Two rounds: `order` says in which order the minibatches of each are reported and pushed, `workers` who computes them.
Floats train(const std::vector<int>& order, const std::vector<int>& workers, const std::string& consistency = "bsp") {
  const auto server = synchronous(consistency);
  for (const std::int64_t round : {0, 1}) {
    for (int worker = 0; worker < kWorkers; ++worker) pull(*server, worker);
    for (const int one : order) report(*server, workers[static_cast<std::size_t>(one)], round * kWorkers + one + 1);
    for (auto one = order.rbegin(); one != order.rend(); ++one)
      push(*server, workers[static_cast<std::size_t>(*one)], round * kWorkers + *one + 1);
  }
  EXPECT_EQ(server->version(), 2);
  return result_of(*server);
}

TEST(Round, DoesNotDependOnWhoComesFirstNorOnWhoComputesWhat) {
  std::vector<int> order = {0, 1, 2, 3};
  const Floats expected = train(order, order);
  do {
    EXPECT_EQ(train(order, {0, 1, 2, 3}), expected);
    EXPECT_EQ(train({3, 1, 0, 2}, order), expected);
  } while (std::ranges::next_permutation(order).found);
  EXPECT_NE(train({0, 1, 2, 3}, {0, 1, 2, 3}, "k_sync"), train({2, 0, 3, 1}, {0, 1, 2, 3}, "k_sync"))
      << "the numbers must be such that the order shows";
}

TEST(Round, CountsTheStatisticsOfAMinibatchWhoseWorkerWasLost) {
  const auto whole = synchronous(), server = synchronous();
  for (Server* one : {whole.get(), server.get()}) {
    for (int worker = 0; worker < kWorkers; ++worker) pull(*one, worker);
    for (int worker = 0; worker < kWorkers; ++worker) report(*one, worker, worker + 1);
    for (int worker = 1; worker < kWorkers; ++worker) push(*one, worker, worker + 1);
  }
  push(*whole, 0, 1);
  server->joined(kWorkers);
  server->left(0);
  pull(*server, kWorkers);
  report(*server, kWorkers, 1);  // a duplicate: its statistics came with the first one
  push(*server, kWorkers, 1);
  EXPECT_EQ(server->version(), 1);
  EXPECT_EQ(result_of(*server), result_of(*whole));
}

TEST(Round, LeavesOutWhatWasRefused) {
  const auto without = synchronous(), server = synchronous();
  for (Server* one : {without.get(), server.get()})
    for (int worker = 0; worker < kWorkers; ++worker) pull(*one, worker);
  report(*server, 0, 9);
  server->refuse(0, {.number = 9});
  pull(*server, 0);
  for (Server* one : {without.get(), server.get()})
    for (int worker = 0; worker < kWorkers; ++worker) report(*one, worker, worker + 1), push(*one, worker, worker + 1);
  EXPECT_EQ(result_of(*server), result_of(*without));
}

TEST(Round, OfOneWorkerBlendsItsStatistics) {
  const auto server = synchronous();
  for (int worker = 1; worker < kWorkers; ++worker) server->left(worker);
  pull(*server, 0);
  report(*server, 0, 1);
  EXPECT_EQ(push(*server, 0, 1).fate, Admission::Fate::applied);
  const Floats norms = random(kNorms, 1, 1);
  for (std::int64_t i = 0; i < kNorms; ++i) EXPECT_EQ(server->statistics()[i], 0.25f * norms[static_cast<std::size_t>(i)]);
}

// A checkpoint in the middle of a round: two minibatches have come, one was only reported.
TEST(Round, GoesOnFromACheckpoint) {
  const auto whole = synchronous(), after = synchronous();
  for (int worker = 0; worker < kWorkers; ++worker) pull(*whole, worker);
  report(*whole, 2, 3), push(*whole, 2, 3);
  report(*whole, 1, 2), push(*whole, 1, 2);
  report(*whole, 0, 1);
  EXPECT_THROW(after->load(whole->numbers(), {}, Server::InProgress::missing), ConfigError);
  after->load(whole->numbers(), {}, Server::InProgress::present);
  after->load_ledger(whole->ledger());
  const auto from = whole->arrays(), to = after->arrays();
  ASSERT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].name, to[i].name);
    std::copy_n(from[i].data, from[i].count, to[i].data);
  }
  for (Server* one : {whole.get(), after.get()}) {
    push(*one, 0, 1);
    report(*one, 3, 4), push(*one, 3, 4);
    EXPECT_EQ(one->version(), 1);
  }
  EXPECT_EQ(result_of(*after), result_of(*whole));
}

// A worker died after this server had minibatch 1 and before another server had it. Whoever computes it again needs the parameters of its
// round, though this server has made the update.
TEST(Round, HandsOutItsParametersAgainToWhoeverMakesUpForALostWorker) {
  const auto server = synchronous("bsp", /*keeps_previous=*/true);
  for (int worker = 0; worker < kWorkers; ++worker) pull(*server, worker);
  const Floats before(server->parameters(), server->parameters() + kLength);
  for (int worker = 0; worker < kWorkers; ++worker) push(*server, worker, worker + 1);
  const Floats after(server->parameters(), server->parameters() + kLength);
  ASSERT_NE(after, before);
  const auto pulled = [&](int worker, std::int64_t number) {
    Floats into(kLength);
    server->grant(worker), server->read(worker, into.data(), 0.1f, number);
    return into;
  };
  EXPECT_EQ(pulled(0, 1), before);
  EXPECT_EQ(pulled(1, 5), after);
  push(*server, 1, 5);
  server->ignore_duplicate(0);
  EXPECT_EQ(pulled(0, 5), after) << "its round is not over";
}

TEST(Round, RefusesADamagedCheckpoint) {
  Round round(allocate_host, kLength, kNorms);
  const Floats values(kLength, 1);
  round.push({}, {5, 1}, values.data(), 1, 0.1f);
  round.push({}, {6, 0}, values.data(), 1, 0.1f);
  std::vector<std::int64_t> good;
  round.save(good);
  std::span<const std::int64_t> whole = good;
  EXPECT_TRUE(Round(round).read(whole));
  EXPECT_TRUE(whole.empty());
  const auto refused = [&](std::vector<std::int64_t> bad) {
    std::span<const std::int64_t> from = bad;
    return !Round(round).read(from) && from.size() == bad.size();
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({good.begin(), good.end() - 1}));
  for (const auto& [place, value] : {std::pair{0, -1}, {0, 3}, {1, -1}, {1, 7}, {2, -1}, {2, 1 << 14}, {5, 0}, {5, 4}}) {
    std::vector<std::int64_t> bad = good;
    bad[static_cast<std::size_t>(place)] = value;
    EXPECT_TRUE(refused(bad)) << place << " is " << value;
  }
}

}  // namespace
}  // namespace paceline::ps
