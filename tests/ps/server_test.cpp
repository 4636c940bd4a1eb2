// The server as a state machine: what it gathers, counts and drops, its ranges, and who waits for whom.
#include "paceline/ps/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "tests/ps/admissions.h"
#include "tests/ps/oracle.h"
#include "tests/ps/player.h"

namespace paceline::ps {
namespace {

using testing::ElementsAre;
using testing::Pair;

PsConfig server_of(const std::string& rule, const std::string& consistency = "asp", std::int64_t group = 0) {
  PsConfig config;
  config.rule = rule, config.consistency = consistency, config.group = group;
  config.layers = 1, config.hidden = 4;  // small predictors
  return config;
}

/// Plays a script whose every push is accepted, and compares the parameters after each event with the oracle's.
void compare_with_oracle(const PsConfig& ps, const optim::OptimConfig& optim, std::string_view script, int group) {
  Player player(ps, optim);
  Oracle oracle(ps, optim, kTensors, first_weights(), 3, group);
  for (const char letter : script) {
    const float rate = rate_at(player.event());
    Doubles gradient = doubles(player.gradient());
    player.play({&letter, 1});
    if (pulls(letter)) oracle.pull(worker_of(letter), rate);
    else oracle.push(worker_of(letter), gradient, rate, 1);
    if (pulls(letter)) continue;
    const Floats actual = player.parameters();
    double worst = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) worst = std::max(worst, std::abs(actual[i] - oracle.weights()[i]));
    ASSERT_LE(worst, ps.rule == "gap_aware" ? 1e-4 : 5e-6) << ps.rule << ' ' << ps.consistency << ", event " << player.event() - 1;
  }
  EXPECT_EQ(player.server().version(), oracle.version());
  EXPECT_EQ(player.server().staleness(), oracle.staleness());
  EXPECT_EQ(player.server().dropped(), 0);
}

constexpr std::string_view kRounds = "ABCcabCABbcaBACabc";                 // of bsp
constexpr std::string_view kTwoOfThree = "ABCabABcaCbAcBaCbABcaCAcbBCac";  // of k_async

const optim::OptimConfig kHeavyBall{.weight_decay = 0.01};
const optim::OptimConfig kAdam{.name = "adam", .weight_decay = 0.01};
const optim::OptimConfig kLars{.name = "lars", .weight_decay = 0.01, .trust = 0.2};
const optim::OptimConfig kClipped{.clip_norm = 100};

TEST(ServerGathers, TheMeanOfARoundUnderBsp) {
  for (const std::string rule : {"average", "asgd", "staleness_aware", "dc_asgd"})
    for (const optim::OptimConfig& optim : {kHeavyBall, kAdam, kLars, kClipped})
      compare_with_oracle(server_of(rule, "bsp"), optim, kRounds, 3);
}

TEST(ServerGathers, GradientsOfDifferentAgesUnderKAsync) {
  for (const std::string rule : {"average", "staleness_aware", "dc_asgd", "gap_aware"})
    for (const optim::OptimConfig& optim : {kHeavyBall, kAdam}) compare_with_oracle(server_of(rule, "k_async", 2), optim, kTwoOfThree, 2);
}

TEST(ServerGathers, SeveralOfOneWorkerUnderKBatchAsync) {
  compare_with_oracle(server_of("average", "k_batch_async", 3), kHeavyBall, "ABCaAaAaAbBcCaAbBcC", 3);
}

TEST(ServerGathers, CountsVersionsStalenessAndWhatIsDropped) {
  Player player(server_of("average", "k_sync", 2), kHeavyBall);
  Server& server = player.server();
  player.play("ABCab");  // the update is made, what C computes is cancelled
  EXPECT_TRUE(server.cancelled(2));
  EXPECT_FALSE(server.cancelled(0));
  const Floats before = player.parameters();
  player.play("c");
  EXPECT_EQ(player.parameters(), before);
  player.play("ACBca");
  player.play("a");  // nothing was pulled for it
  EXPECT_THAT(player.admissions(), ElementsAre(gathered(1), applied(2), kDropped, gathered(1), applied(2), kDropped));
  EXPECT_EQ(server.version(), 2);
  EXPECT_EQ(server.dropped(), 2);
  EXPECT_EQ(server.refused(), 0);
  EXPECT_THAT(server.staleness(), ElementsAre(Pair(0, 4)));
}

TEST(ServerGathers, CompletesARoundWhenTheLastOneLeaves) {
  Player player(server_of("average", "bsp"), kHeavyBall);
  player.play("ABCab");
  EXPECT_EQ(player.server().version(), 0);
  player.server().left(2);
  EXPECT_EQ(player.server().version(), 1);

  Oracle oracle(server_of("average"), kHeavyBall, kTensors, first_weights(), 3, 2);
  for (const std::uint64_t event : {3u, 4u}) {
    Doubles gradient = doubles(drawn(event));
    oracle.push(static_cast<int>(event - 3), gradient, rate_at(4), 1);  // the rate of the last that came
  }
  const Floats parameters = player.parameters();
  for (std::size_t i = 0; i < kLength; ++i) ASSERT_NEAR(parameters[i], oracle.weights()[i], 1e-6);
  EXPECT_TRUE(player.server().may_pull(0));
  EXPECT_TRUE(player.server().may_pull(1));
  EXPECT_FALSE(player.server().may_pull(2));
  player.server().left(0), player.server().left(1);
  EXPECT_EQ(player.server().version(), 1) << "nothing was gathered";
}

TEST(Server, LetsAWorkerBeginAnewWhosePushWasRefused) {
  Player player(server_of("average", "bsp"), kHeavyBall);
  player.play("ABC");
  player.server().refuse(1);
  EXPECT_EQ(player.server().refused(), 1);
  EXPECT_EQ(player.server().dropped(), 0);
  EXPECT_EQ(player.parameters(), first_weights());
  player.play("Bacb");
  EXPECT_THAT(player.admissions(), ElementsAre(gathered(1), gathered(2), applied(3)));
  EXPECT_THAT(player.server().staleness(), ElementsAre(Pair(0, 3)));
}

TEST(Server, ForgetsTheVelocityOfAWorkerThatLeft) {
  for (const bool returns : {false, true}) {
    Player player(server_of("dana"), {.momentum = 0.5}, 2);
    player.play("ABab");
    player.server().left(1);
    if (returns) player.server().joined(1);
    player.play("A");
    const Floats sent = player.pulled(), parameters = player.parameters();
    for (const optim::Segment& tensor : kTensors)
      for (std::int64_t k = 0; k < tensor.count; ++k) {
        const auto i = static_cast<std::size_t>(tensor.offset + k);
        ASSERT_NEAR(sent[i], parameters[i] - rate_at(4) * 0.5f * drawn(2)[i], 1e-6) << i;
      }
  }
}

TEST(Server, ClipsTheNormOfTheWholeUpdate) {
  const optim::OptimConfig clipped{.momentum = 0, .clip_norm = 3};
  for (const auto& [consistency, script] : {std::pair{"asp", "Aa"}, {"bsp", "ABCabc"}}) {
    Player player(server_of("asgd", consistency), clipped);
    player.play(script);
    const Floats parameters = player.parameters();
    double square = 0;
    for (std::size_t i = 0; i < kLength; ++i) square += std::pow(parameters[i] - double{first_weights()[i]}, 2);
    const double rate = rate_at(player.event() - 1);
    EXPECT_NEAR(std::sqrt(square) / rate, 3, 3e-3) << consistency;  // all but the gaps between the tensors moves
  }
}

TEST(Server, WorksInTheMemoryThatItIsGiven) {
  Floats arena = first_weights();
  Server::Setup setup;
  setup.segments = kTensors, setup.length = setup.end = std::ssize(arena), setup.parameters = arena.data();
  Server server(server_of("asgd"), kHeavyBall, setup);
  Player other(server_of("asgd"), kHeavyBall, 1);
  server.pull(0, arena.data(), 0.1f);  // nothing to copy
  Floats gradient = drawn(1);
  server.push(0, gradient.data(), {.rate = rate_at(1)});
  other.play("Aa");
  EXPECT_EQ(arena, other.parameters());
}

// ---- ranges of the arena

struct Pairing {
  PsConfig ps;
  optim::OptimConfig optim;
};

TEST(ServerRanges, TwoHalvesAreTheWhole) {
  const Pairing pairings[] = {{server_of("asgd"), kHeavyBall},
                              {server_of("asgd"), kAdam},
                              {server_of("dc_asgd"), kHeavyBall},
                              {server_of("gap_aware"), kAdam},
                              {server_of("dana"), kHeavyBall},
                              {server_of("easgd"), kHeavyBall},
                              {server_of("staleness_aware"), kHeavyBall},
                              {server_of("asgd"), kLars},
                              {server_of("dc_asgd"), kLars}};
  for (const auto& [ps, optim] : pairings) {
    const auto cuts = cut_ranges(kTensors, static_cast<std::int64_t>(kLength), 2, optim.name != "lars");
    Player whole(ps, optim), first(ps, optim, 3, cuts[0], cuts[1]), second(ps, optim, 3, cuts[1], cuts[2]);
    for (Player* player : {&whole, &first, &second}) player->play(kScript);
    Floats both = first.parameters(), sent = first.pulled();
    std::ranges::copy(second.parameters(), std::back_inserter(both));
    sent.insert(sent.end(), second.pulled().begin(), second.pulled().end());
    EXPECT_EQ(both, whole.parameters()) << ps.rule << ' ' << optim.name;
    EXPECT_EQ(sent, whole.pulled()) << ps.rule << ' ' << optim.name;
  }
}

TEST(ServerRanges, AreOfAboutTheSameLength) {
  const auto length = static_cast<std::int64_t>(kLength);
  for (int servers = 1; servers <= 7; ++servers) {
    const auto cuts = cut_ranges(kTensors, length, servers, true);
    ASSERT_EQ(std::ssize(cuts), servers + 1);
    EXPECT_EQ(cuts.front(), 0);
    EXPECT_EQ(cuts.back(), length);
    for (std::size_t i = 1; i < cuts.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(cuts[i] - cuts[i - 1]), static_cast<double>(length) / servers, 16);
      EXPECT_TRUE(cuts[i] == length || cuts[i] % 16 == 0) << "whole cache lines";
    }
  }
}

TEST(ServerRanges, KeepTensorsWholeWhereNormsDecide) {
  std::set<std::int64_t> starts = {0};
  for (const optim::Segment& tensor : kTensors) starts.insert(tensor.offset);
  for (int servers = 1; servers <= 20; ++servers) {  // more than there are tensors
    const auto cuts = cut_ranges(kTensors, static_cast<std::int64_t>(kLength), servers, false);
    ASSERT_EQ(std::ssize(cuts), servers + 1);
    EXPECT_EQ(cuts.back(), static_cast<std::int64_t>(kLength));
    EXPECT_TRUE(std::ranges::is_sorted(cuts));
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) EXPECT_TRUE(starts.contains(cuts[i])) << cuts[i];
  }
  EXPECT_THAT(cut_ranges(std::vector<optim::Segment>{{0, 100}, {100, 10}, {110, 90}}, 200, 2, false), ElementsAre(0, 100, 200));
}

TEST(ServerRanges, MayBeEmpty) {
  Player player(server_of("dc_asgd"), kHeavyBall, 3, 64, 64);
  player.play(kScript);
  EXPECT_EQ(player.server().version(), 14);
}

// ---- SSP through the server

TEST(ServerSsp, NeverLetsAWorkerFurtherAheadThanTheBound) {
  constexpr int kWorkers = 5;
  for (const std::int64_t bound : {0, 1, 4}) {
    PsConfig config = server_of("asgd", "ssp");
    config.bound = bound;
    Server::Setup setup;
    setup.segments = {{0, 3}}, setup.length = setup.end = 3, setup.workers = kWorkers;
    Server server(config, {.momentum = 0}, setup);
    RandomStream random(3, Purpose::test, static_cast<std::uint64_t>(bound));
    std::vector<std::int64_t> clock(kWorkers), widest(kWorkers);
    std::vector<bool> computes(kWorkers);
    int waits = 0;
    for (int event = 0; event < 10'000; ++event) {
      const auto m = static_cast<std::size_t>(random.below(2) ? random.below(kWorkers) : 0);  // worker 0 is in a hurry
      const auto worker = static_cast<int>(m);
      const std::int64_t ahead = clock[m] - *std::ranges::min_element(clock);
      Floats values(3, 0.25f);
      if (computes[m]) {
        EXPECT_FALSE(server.may_pull(worker));
        ASSERT_EQ(server.push(worker, values.data(), {.rate = 0}), applied(1));
        computes[m] = false, ++clock[m];
      } else if (server.may_pull(worker)) {
        ASSERT_LE(ahead, bound) << "event " << event;
        widest[m] = std::max(widest[m], ahead);
        server.pull(worker, values.data(), 0);
        computes[m] = true;
      } else {
        ASSERT_GT(ahead, bound) << "waits without need, event " << event;
        ++waits;
      }
    }
    EXPECT_GT(waits, 0);
    EXPECT_EQ(widest[0], bound) << "and it goes as far as it may";
    // While a worker computes, each other one goes from `bound` behind it to `bound` ahead, and makes one update more.
    EXPECT_LE(server.staleness().rbegin()->first, (kWorkers - 1) * (2 * bound + 1));
  }
}

}  // namespace
}  // namespace paceline::ps
