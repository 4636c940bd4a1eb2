// How `auto` chooses.
#include "paceline/comm/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "paceline/base/random.h"
#include "ranks.h"

namespace paceline::comm {
namespace {

using schedule::cheapest;
using schedule::Collective;
using schedule::Costs;
using schedule::Problem;
using schedule::rounded_length;
using testing::Each;
using testing::HasSubstr;

/// Every rank a host of its own.
CommConfig far_apart() {
  CommConfig config;
  config.per_host = 1;
  return config;
}

// A message under way is its receiver's alone, whatever `auto` does to find out what messages cost.
TEST(Auto, LeavesMessagesOfItsCallersAlone) {
  CommConfig config = far_apart();
  config.repeatable = false;
  const auto problems = play(3, config, [](Communicator& comm) {
    std::vector<float> message(2000, 7), values(100, 1);
    Work sent;
    if (comm.rank() == 2) sent = comm.start(send(message, 0));
    comm.run(allreduce(values));
    EXPECT_EQ(values.back(), 3);
    if (comm.rank() == 0) {
      std::fill(message.begin(), message.end(), 0.f);
      comm.run(receive(message, 2));
      EXPECT_EQ(message.back(), 7);
    }
    if (comm.rank() == 2) sent.wait();
  });
  EXPECT_THAT(problems, Each(""));
}

// Where results must repeat, nothing that was measured has a say in the order of additions.
TEST(Auto, ChoosesByBuiltInCostsWhereResultsMustRepeat) {
  constexpr int kRanks = 5;
  const auto sum = [](std::int64_t count, const std::string& algorithm) {
    std::vector<float> answer;
    play(kRanks, far_apart(), [&](Communicator& comm) {
      std::vector<float> values(static_cast<std::size_t>(count));
      RandomStream stream(11, Purpose::test, static_cast<std::uint64_t>(comm.rank()));
      for (float& value : values) value = stream.normal();
      comm.run(allreduce(values, {.op = ReduceOp::sum, .root = 0, .algorithm = algorithm, .deadline = {}}));
      if (comm.rank() == 3) answer = values;
    });
    return answer;
  };
  const auto choice = [](std::int64_t count) { return cheapest(built_in_costs(false, {}, {}), {.size = kRanks, .count = count}, 4); };
  const auto rounded = [](std::int64_t count) { return rounded_length(count * 4) / 4; };
  // Just below where another becomes the cheapest, the rounded length counts.
  std::int64_t crossing = 100;
  while (choice(crossing) == choice(rounded(crossing))) ++crossing;
  for (const std::int64_t count : {std::int64_t{3}, crossing, std::int64_t{400000}}) {
    const std::string chosen = choice(rounded(count));
    const std::vector<float> by_auto = sum(count, "auto"), by_name = sum(count, chosen);
    EXPECT_EQ(std::memcmp(by_auto.data(), by_name.data(), by_auto.size() * 4), 0) << count << " by " << chosen;
  }
}

// What is remembered of a group's choices stays small whatever lengths come.
TEST(Auto, ChoosesForAFewLengthsInEachPowerOfTwo) {
  std::set<std::int64_t> lengths;
  for (std::int64_t bytes = 0; bytes < 100'000; ++bytes) {
    const std::int64_t length = rounded_length(bytes);
    EXPECT_GE(length, bytes);
    EXPECT_LE(length, bytes + bytes / 8);
    lengths.insert(length);
  }
  EXPECT_LE(lengths.size(), 8U * 17U);
  EXPECT_EQ(rounded_length(17 * 4), 18 * 4) << "whole elements stay whole";
}

// Its parts are of one size, which the rounded length cannot be cut into.
TEST(Auto, ChoosesForAnAllToAllToo) {
  const auto problems = play(3, far_apart(), [](Communicator& comm) {
    std::vector<std::uint8_t> from(999, static_cast<std::uint8_t>(comm.rank())), to(999);
    comm.run(all_to_all(from, to));
    EXPECT_EQ(to.back(), 2);
  });
  EXPECT_THAT(problems, Each(""));
}

TEST(Auto, MeasuresAllThatItNeeds) {
  play(3, far_apart(), [](Communicator& comm) {
    const Costs costs = measure_costs(comm);
    EXPECT_GT(costs.between.alpha_s, 0);
    EXPECT_GE(costs.between.gap_s, 0);
    EXPECT_LE(costs.between.gap_s, costs.between.alpha_s);
    EXPECT_GT(costs.between.bytes_per_s, 0);
    EXPECT_GT(costs.reduce_s_per_byte, 0);
  });
}

// Each message that a rank sends at the same time costs it something, so a few bytes over many hosts do not go to all of them at once.
TEST(Cheapest, FewBytesOverManyHostsGoInLogarithmicallyManyRounds) {
  const Costs costs = built_in_costs(true, {}, {});
  for (const auto& [collective, count] : {std::pair{Collective::allreduce, 2},
                                          {Collective::allreduce, 64},
                                          {Collective::all_gather, 64},
                                          {Collective::broadcast, 2},
                                          {Collective::reduce, 2}}) {
    const Problem problem{.collective = collective, .size = 64, .count = count};
    const std::string key = cheapest(costs, problem, 4);
    const int rounds = schedule::algorithm_for(key, collective).make.formula(problem).rounds;
    EXPECT_THAT(rounds, testing::AllOf(testing::Ge(6), testing::Le(12))) << name_of(collective) << " by " << key;
  }
}

TEST(Cheapest, LongBuffersGoWithLittleTraffic) {
  const Costs costs = built_in_costs(true, {}, {});
  for (const int size : {4, 5, 8, 12}) {
    const Problem problem{.size = size, .count = 16 << 20};
    const auto& row = schedule::algorithm_for(cheapest(costs, problem, 4), Collective::allreduce);
    EXPECT_LE(row.make.formula(problem).sent, 2 * problem.count) << size << " by " << row.key;
  }
}

TEST(Topology, KnowsRanksThatAreNoNeighbours) {
  using Hosts = std::vector<int>;
  EXPECT_EQ(topology_of(Hosts{0, 0, 1, 1, 2}).per_host, 2);
  for (const auto& neat : {Hosts{0}, Hosts{0, 1, 2}, Hosts{0, 0, 0}, Hosts{0, 0, 1}, Hosts{1, 1, 0, 0}, Hosts{0, 0, 1, 1, 2}})
    EXPECT_FALSE(topology_of(neat).scattered) << testing::PrintToString(neat);
  for (const auto& scattered : {Hosts{0, 1, 0, 1}, Hosts{0, 0, 1, 2}, Hosts{0, 1, 1}, Hosts{0, 0, 1, 0}})
    EXPECT_TRUE(topology_of(scattered).scattered) << testing::PrintToString(scattered);
}

// As under mpirun --map-by node: rank 0 on the first host, 1 on the second, 2 on the first again.
TEST(Hierarchical, RefusesRanksOfAHostThatAreNoNeighbours) {
  CommConfig config;
  config.per_host = 2;
  const auto problems = play(4, config, [](Communicator& comm) {
    const auto cyclic = comm.split(0, comm.rank() % 2);  // 0, 2, 1, 3
    std::vector<float> values(10, 1);
    cyclic->run(allreduce(values));
    EXPECT_EQ(values[0], 4);
    cyclic->run(allreduce(values, {.op = ReduceOp::sum, .root = 0, .algorithm = "hierarchical", .deadline = {}}));
  });
  EXPECT_THAT(problems, Each(HasSubstr("--map-by slot")));
}

TEST(BuiltInCosts, KnowTheLinkThatIsPlayed) {
  CommConfig config;
  config.link_gbit_per_s = 1;
  config.link_latency_us = 500;
  const Costs plain = built_in_costs(true, {}, {}), played = built_in_costs(true, config, {.per_host = 2, .hosts = 3});
  EXPECT_DOUBLE_EQ(played.between.alpha_s, plain.between.alpha_s + 500e-6);
  EXPECT_DOUBLE_EQ(played.between.bytes_per_s, 1e9 / 8);
}

TEST(BuiltInCosts, KnowBothClassesOfLinks) {
  const Costs costs = built_in_costs(true, {}, {.per_host = 4, .hosts = 3}), flat = built_in_costs(true, {}, {.per_host = 1, .hosts = 12});
  EXPECT_EQ(costs.per_host, 4);
  EXPECT_LT(costs.inside.alpha_s, costs.between.alpha_s);
  EXPECT_GT(costs.inside.bytes_per_s, costs.between.bytes_per_s);
  EXPECT_EQ(flat.inside.alpha_s, flat.between.alpha_s);
  // Twelve ranks side by side on three hosts: a ring crosses hosts three times a round, and one that goes to everybody nine times.
  const Problem gather{.collective = Collective::all_gather, .size = 12, .count = 4 << 20, .per_host = 4};
  const auto seconds = [&](const char* key, const Costs& by) {
    return predict(by, schedule::algorithm_for(key, gather.collective).make, gather, 4);
  };
  EXPECT_LT(seconds("ring", costs) / seconds("direct", costs), 0.5 * seconds("ring", flat) / seconds("direct", flat));
}

TEST(BuiltInCosts, TakeJitterForItsMean) {
  CommConfig config;
  config.link_jitter_us = 300;  // from 0 to 300
  EXPECT_DOUBLE_EQ(built_in_costs(true, config, {}).between.alpha_s, built_in_costs(true, {}, {}).between.alpha_s + 150e-6);
}

}  // namespace
}  // namespace paceline::comm
