// The running mean of the server's parameters, which is evaluated in their place, against its formula in double.
#include <gtest/gtest.h>

#include "tests/ps/oracle.h"
#include "tests/ps/player.h"

namespace paceline::ps {
namespace {

TEST(Averaging, ShowsTheRunningMeanOfTheParametersAfterEveryUpdate) {
  for (const std::string rule : {"asgd", "dc_asgd", "easgd", "heloco"}) {
    PsConfig averaged = of_rule(rule), plain = averaged;
    averaged.averaging = 0.75;
    Player player(averaged, {}), other(plain, {});
    Doubles mean;
    for (const char letter : kScript) {
      player.play({&letter, 1}), other.play({&letter, 1});
      ASSERT_EQ(player.parameters(), other.parameters()) << rule << ": training does not see the mean";
      ASSERT_EQ(player.pulled(), other.pulled());
      if (pulls(letter)) continue;
      const Floats now = player.parameters();
      if (mean.empty()) mean = doubles(now);
      else
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = 0.75 * mean[i] + 0.25 * now[i];
      Floats shown(now.size());
      player.server().show(shown.data());
      double worst = 0;
      for (std::size_t i = 0; i < mean.size(); ++i) worst = std::max(worst, std::abs(shown[i] - mean[i]));
      ASSERT_LE(worst, 1e-5) << rule;
    }
  }
}

TEST(Averaging, OfGatheredGradientsCountsUpdates) {
  PsConfig config = of_rule("average");
  config.consistency = "k_async", config.group = 2, config.averaging = 0.5;
  Player player(config, {});
  Floats shown(kLength);
  player.play("ABCa");
  player.server().show(shown.data());
  EXPECT_EQ(shown, player.parameters()) << "no update yet";
  player.play("b");
  const Floats first = player.parameters();
  player.play("ABca");
  const Floats second = player.parameters();
  ASSERT_NE(first, second);
  player.server().show(shown.data());
  for (std::size_t i = 0; i < kLength; i += 97) EXPECT_FLOAT_EQ(shown[i], 0.5f * (first[i] + second[i]));
}

}  // namespace
}  // namespace paceline::ps
