// What a checkpoint keeps of a server: another one goes on with the same bits, with other workers too, and refuses what is damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "paceline/base/error.h"
#include "paceline/ps/server.h"
#include "tests/ps/player.h"

namespace paceline::ps {
namespace {

using RuleState = std::vector<UpdateRule::State>;

PsConfig server_of(const std::string& rule, const std::string& consistency = "asp", std::int64_t group = 0) {
  PsConfig config;
  config.rule = rule, config.consistency = consistency, config.group = group;
  config.layers = 1, config.hidden = 4;  // small predictors
  return config;
}

constexpr std::string_view kRounds = "ABCcabCABbcaBACabc";                 // of bsp
constexpr std::string_view kTwoOfThree = "ABCabABcaCbAcBaCbABcaCAcbBCac";  // of k_async

const optim::OptimConfig kHeavyBall{.weight_decay = 0.01};
const optim::OptimConfig kAdam{.name = "adam", .weight_decay = 0.01};

/// All that a checkpoint has of a server's memory, by name.
std::map<std::string, Floats> memory_of(Server& server) {
  std::map<std::string, Floats> memory = {{"parameters", {server.parameters(), server.parameters() + server.length()}}};
  for (const Server::Array& array : server.arrays()) memory[array.name] = {array.data, array.data + array.count};
  return memory;
}

TEST(ServerCheckpoint, GoesOnWithTheSameBits) {
  PsConfig constant = server_of("dc_asgd"), ssp = server_of("asgd", "ssp");
  constant.compensation = "constant", ssp.bound = 2;
  PsConfig averaged = server_of("dc_asgd"), maximal = server_of("gap_aware"), delayed = server_of("delayed_nesterov"),
           gated = server_of("cgad"), turned = server_of("heloco"), ahead = server_of("look_ahead");
  averaged.averaging = 0.9, maximal.gap_rate = "maximal";
  for (PsConfig* outer : {&delayed, &gated, &turned, &ahead}) outer->optimizer = "worker";
  const std::tuple<PsConfig, optim::OptimConfig, std::string_view> cases[] = {
      {server_of("asgd"), kHeavyBall, kScript},
      {server_of("asgd"), kAdam, kScript},
      {constant, kHeavyBall, kScript},
      {server_of("dc_asgd"), kAdam, kScript},
      {server_of("gap_aware"), kAdam, kScript},
      {server_of("staleness_aware"), kHeavyBall, kScript},
      {server_of("lc_asgd"), kHeavyBall, kScript},
      {server_of("dana"), kHeavyBall, kScript},
      {server_of("easgd"), kHeavyBall, kScript},
      {averaged, kAdam, kScript},
      {maximal, kHeavyBall, kScript},
      {server_of("stability_cap"), kHeavyBall, kScript},
      {delayed, kHeavyBall, kScript},
      {gated, kHeavyBall, kScript},
      {turned, kHeavyBall, kScript},
      {ahead, kHeavyBall, kScript},
      {ssp, kHeavyBall, kRounds},
      {server_of("average", "bsp"), kAdam, kRounds},
      {server_of("dc_asgd", "k_async", 2), kHeavyBall, kTwoOfThree},
      {server_of("gap_aware", "k_async", 2), kHeavyBall, kTwoOfThree},
  };
  for (const auto& [ps, optim, script] : cases)
    for (const std::size_t half : {script.size() / 2, script.size() / 2 + 1}) {  // also in the middle of a round
      Player whole(ps, optim), before(ps, optim), after(ps, optim);
      whole.play(script);
      before.play(script.substr(0, half));
      before.hand_over_to(after);
      after.play(script.substr(half));
      EXPECT_TRUE(memory_of(after.server()) == memory_of(whole.server())) << ps.rule << ' ' << ps.consistency << ' ' << optim.name;
      EXPECT_EQ(after.pulled(), whole.pulled());
      EXPECT_EQ(after.scale(), whole.scale());
      EXPECT_EQ(after.server().numbers(), whole.server().numbers());
      EXPECT_EQ(after.server().rule_state(), whole.server().rule_state());
    }
}

// What completes the round is no push: its rate and what it moved have to come from the checkpoint.
TEST(ServerCheckpoint, CompletesARoundWhenTheLastOneLeaves) {
  for (const std::string rule : {"average", "gap_aware"}) {
    const PsConfig config = server_of(rule, "k_async", 2);
    Player whole(config, kHeavyBall), after(config, kHeavyBall);
    whole.play("ABCabABcaCb");  // 0 may pull, 1 waits for the update and 2 computes
    whole.hand_over_to(after);
    const Floats before = whole.parameters();
    for (Player* player : {&whole, &after}) player->server().left(0), player->server().left(2);
    EXPECT_NE(whole.parameters(), before);
    EXPECT_TRUE(memory_of(after.server()) == memory_of(whole.server())) << rule;
  }
}

TEST(ServerCheckpoint, ServesAnotherNumberOfWorkers) {
  for (const std::string rule : {"asgd", "dc_asgd", "gap_aware", "lc_asgd"})
    for (const int workers : {2, 5}) {
      Player before(server_of(rule), kAdam), after(server_of(rule), kAdam, workers);
      before.play(kScript);
      before.hand_over_to(after);
      EXPECT_EQ(after.server().version(), 14);
      EXPECT_EQ(after.server().staleness(), before.server().staleness());
      for (Player* player : {&before, &after}) player->play("ABabBAab");  // whom both have
      EXPECT_EQ(after.parameters(), before.parameters()) << rule << " with " << workers;
      EXPECT_EQ(after.server().staleness(), before.server().staleness());
      if (workers == 5) after.play("ECec");
    }
}

// Where nobody waits in a round nothing is lost, and nothing is said; of several servers one says it.
TEST(ServerCheckpoint, TellsOtherWorkersWhatARoundLost) {
  const auto said = [](std::string_view script, int workers, std::int64_t begin) {
    const PsConfig config = server_of("average", "bsp");
    Player before(config, kHeavyBall, 3, begin), after(config, kHeavyBall, workers, begin);
    before.play(script);
    testing::internal::CaptureStderr();
    before.hand_over_to(after);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said("ABCab", 2, 0), testing::HasSubstr("2 gradients"));
  EXPECT_EQ(said("ABCab", 3, 0), "");
  EXPECT_EQ(said("ABCabc", 2, 0), "");
  EXPECT_EQ(said("ABCab", 2, kTensors[3].offset), "");
  const PsConfig group = server_of("gap_aware", "k_async", 2);
  Player before(group, kHeavyBall), after(group, kHeavyBall, 2);
  before.play("ABCa");
  testing::internal::CaptureStderr();
  before.hand_over_to(after);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("1 gradient "));
}

// Answers are kept for workers whose connection broke before theirs arrived.
TEST(ServerCheckpoint, KeepsNoAnswersForWorkersThatAreGone) {
  PsConfig config = server_of("easgd");
  Player before(config, kHeavyBall), fewer(config, kHeavyBall, 2);
  before.play("ABC");
  for (const int worker : {0, 1, 2}) {
    Floats replica = before.gradient();
    before.server().push(worker, replica.data(), {.number = worker + 1});
  }
  const auto answers = [](Server& server) {
    return std::ranges::count_if(server.arrays(), [](const Server::Array& array) { return array.name.starts_with("answer."); });
  };
  ASSERT_EQ(answers(before.server()), 3);
  fewer.server().load_ledger(before.server().ledger());
  EXPECT_EQ(answers(fewer.server()), 2);
  EXPECT_TRUE(fewer.server().handled(3)) << "its minibatch counts all the same";
}

TEST(ServerCheckpoint, RefusesDamagedNumbers) {
  Player player(server_of("lc_asgd"), kHeavyBall);
  player.play(kScript);
  const auto numbers = player.server().numbers();
  for (const std::size_t left : {0, 3, 5, 9}) {
    Player other(server_of("lc_asgd"), kHeavyBall);
    const auto before = other.server().numbers();
    EXPECT_THROW(other.server().load({numbers.data(), left}, {}, Server::InProgress::present), ConfigError) << left;
    EXPECT_EQ(other.server().numbers(), before) << left;
  }
  Player other(server_of("lc_asgd"), kHeavyBall);
  other.play("ABab");
  const auto before = other.server().numbers();
  const RuleState predicted = other.server().rule_state();
  RuleState shorter = player.server().rule_state(), nonsense = shorter;
  shorter[0].values.pop_back(), nonsense[0].values = {-1, 1e30f, std::numeric_limits<float>::quiet_NaN(), 0};
  for (const RuleState& state : {shorter, nonsense}) {
    EXPECT_THROW(other.server().load(numbers, state, Server::InProgress::present), ConfigError);
    EXPECT_EQ(other.server().numbers(), before);
    EXPECT_EQ(other.server().rule_state(), predicted);
  }
}

// The loss predictor is not taken over where the step predictor behind it does not fit.
TEST(ServerCheckpoint, RefusesPredictorsAsAWhole) {
  Player player(server_of("lc_asgd"), kHeavyBall), other(server_of("lc_asgd"), kHeavyBall);
  player.play(kScript), other.play("ABab");
  RuleState state = player.server().rule_state();
  state[0].values[2] -= 1, state[0].values.pop_back();  // it says so itself
  const auto before = other.server().numbers();
  const RuleState predicted = other.server().rule_state();
  EXPECT_THROW(other.server().load(player.server().numbers(), state, Server::InProgress::present), ConfigError);
  EXPECT_EQ(other.server().rule_state(), predicted);
  EXPECT_EQ(other.server().numbers(), before);
}

TEST(ServerCheckpoint, RefusesARoundWhoseGradientsAreMissing) {
  Player player(server_of("average", "bsp"), kHeavyBall), other(server_of("average", "bsp"), kHeavyBall);
  player.play("ABa");
  const auto before = other.server().numbers();
  EXPECT_THROW(other.server().load(player.server().numbers(), {}, Server::InProgress::missing), ConfigError);
  EXPECT_EQ(other.server().numbers(), before);
}

}  // namespace
}  // namespace paceline::ps
