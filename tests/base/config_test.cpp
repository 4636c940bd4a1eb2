#include "paceline/base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "paceline/base/clock.h"
#include "paceline/base/error.h"
#include "paceline/base/registry.h"
#include "paceline/base/temporary_folder.h"
#include "tests/message_of.h"

namespace paceline {
namespace {

using testing::HasSubstr;

struct Optim {
  std::string name = "sgd";
  double rate = 0.1;
  std::int64_t steps = 10;
  bool nesterov = false;
  std::vector<std::int64_t> milestones = {30, 60};
  std::vector<double> betas;
  void describe(Section& s) {
    s.field("name", name, "which").one_of({"sgd", "adam"});
    s.field("rate", rate, "learning rate").above(0);
    s.field("steps", steps, "how many").at_least(1).at_most(1000);
    s.field("nesterov", nesterov, "look ahead");
    s.field("milestones", milestones, "epochs");
    s.field("betas", betas, "two numbers");
  }
};

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() { config.bind("optim", "the optimizer", optim); }

  std::string error_of(const std::string& assignment) {
    try {
      config.set(assignment);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path file(const std::string& text) {
    const auto path = folder / "recipe.toml";
    std::ofstream(path) << text;
    return path;
  }

  const TemporaryFolder folder;
  Optim optim;
  Config config;
};

TEST_F(ConfigTest, AssignmentsReachTheStruct) {
  config.set("optim.name=adam");
  config.set("optim.rate = 1");  // an integer is a number
  config.set("optim.nesterov=true");
  config.set("optim.milestones=[1, 2, 3]");
  config.set("optim.betas=[0.9, 1]");
  EXPECT_EQ(optim.name, "adam");
  EXPECT_EQ(optim.rate, 1.0);
  EXPECT_TRUE(optim.nesterov);
  EXPECT_EQ(optim.milestones, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(optim.betas, (std::vector<double>{0.9, 1.0}));
}

// A value means the same on the command line and in a recipe.
TEST_F(ConfigTest, NumbersAreWrittenAsInToml) {
  for (const auto& [text, value] : std::vector<std::pair<std::string, std::int64_t>>{
           {"64", 64}, {"+64", 64}, {"0x40", 64}, {"0X40", -1}, {"0o17", 15}, {"0b101", 5}, {"1_000", 1000}, {"0xf_f", 255}}) {
    optim.steps = 1;
    if (value < 0) {
      EXPECT_NE(error_of("optim.steps=" + text), "") << text;
      EXPECT_THROW(config.load_text("[optim]\nsteps = " + text, "recipe"), ConfigError) << text;
      continue;
    }
    EXPECT_EQ(error_of("optim.steps=" + text), "");
    EXPECT_EQ(optim.steps, value) << text;
    optim.steps = 1;
    config.load_text("[optim]\nsteps = " + text, "recipe");
    EXPECT_EQ(optim.steps, value) << text;
  }
  for (const char* wrong : {"0x", "0x-4", "-0x4", "+-4", "_4", "4_", "4__0", "0b2", ""})
    EXPECT_NE(error_of(std::string("optim.steps=") + wrong), "") << wrong;
  config.set("optim.milestones=[0x10, 1_0]");
  EXPECT_EQ(optim.milestones, (std::vector<std::int64_t>{16, 10}));
  config.set("optim.rate=1_0.5");
  EXPECT_EQ(optim.rate, 10.5);
}

TEST_F(ConfigTest, MistakesAreNamedAndChangeNothing) {
  EXPECT_THAT(error_of("optim.rat=1"), HasSubstr("did you mean 'rate'"));
  EXPECT_THAT(error_of("optin.rate=1"), HasSubstr("did you mean 'optim'"));
  EXPECT_THAT(error_of("optim.name=adm"), HasSubstr("did you mean 'adam'"));
  EXPECT_THAT(error_of("optim.steps=1.5"), HasSubstr("optim.steps must be an integer, not a number (1.5)"));
  EXPECT_THAT(error_of("optim.steps=0"), HasSubstr("at least 1 and at most 1000, not 0"));
  EXPECT_THAT(error_of("optim.rate=0"), HasSubstr("above 0"));
  EXPECT_THAT(error_of("optim.rate=nan"), HasSubstr("finite"));
  EXPECT_THAT(error_of("optim.rate=inf"), HasSubstr("finite"));
  EXPECT_THAT(error_of("optim.rate=1e400"), HasSubstr("optim.rate is out of range"));
  EXPECT_THAT(error_of("optim.betas=[1e400]"), HasSubstr("optim.betas is out of range"));
  EXPECT_THAT(error_of("optim.rate=1e-400"), HasSubstr("above 0, not 0"));
  EXPECT_THAT(error_of("optim.rate=fast"), HasSubstr("must be a number, not text"));
  EXPECT_THAT(error_of("rate=1"), HasSubstr("section.key=value"));
  EXPECT_EQ(optim.steps, 10);
  EXPECT_EQ(optim.rate, 0.1);
}

TEST(Assignment, IsToldFromTheNameOfAFile) {
  for (const char* word : {"optim.rate=0.1", "optim.rate = 0.1", "data.root=/sets/a.toml", "train.name=a=b", "rate=0.1", "=", "a.b.c=1"})
    EXPECT_TRUE(is_assignment(word)) << word;
  for (const char* word : {"my.toml", "optim.rate", "runs/lr=0.1/recipe.toml", "lr=0.1/recipe.toml", "./optim.rate=0.1", "../a.b=1/recipe"})
    EXPECT_FALSE(is_assignment(word)) << word;
}

TEST_F(ConfigTest, AFileIsReadAndItsMistakesCarryTheLine) {
  config.load(file("[optim]\nrate = 0.5\nmilestones = [5]\n"));
  EXPECT_EQ(optim.rate, 0.5);
  EXPECT_EQ(optim.milestones, std::vector<std::int64_t>{5});
  try {
    config.load(file("[optim]\n\nratee = 0.5\n"));
    FAIL() << "accepted an unknown key";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("line 3: unknown key in [optim] 'ratee'; did you mean 'rate'?"));
  }
  EXPECT_THROW(config.load(file("[optim\n")), ConfigError);
  EXPECT_THROW(config.load(file("rate = 1\n")), ConfigError);
  EXPECT_THROW(config.load("/no/such/file.toml"), ConfigError);
}

TEST_F(ConfigTest, AMistakeInAFileNamesItsKey) {
  const auto error_in = [&](const std::string& text) { return message_of<ConfigError>([&] { config.load_text(text, "r"); }); };
  EXPECT_EQ(error_in("[optim.rate]\na = 1"), "r, line 1: optim.rate must be a boolean, a number, text or a list");
  EXPECT_EQ(error_in("[optim]\nrate = 1979-05-27"), "r, line 2: optim.rate must be a boolean, a number, text or a list");
  EXPECT_EQ(error_in("[optim]\nbetas = [\"a\"]"), "r, line 2: optim.betas must be a list of numbers");
  EXPECT_THAT(error_in("[optim.rat]\na = 1"), HasSubstr("unknown key in [optim] 'rat'; did you mean 'rate'?"));
}

TEST_F(ConfigTest, AFileThatCannotBeReadSaysWhy) {
  std::filesystem::create_symlink("loop", folder / "loop");
  const auto why = [&](const std::filesystem::path& path) { return message_of<DataError>([&] { config.load(path); }); };
  EXPECT_THAT(why(folder / "loop"), HasSubstr("loop: cannot open: Too many levels"));
  EXPECT_THAT(why(folder / std::string(5000, 'x')), HasSubstr("cannot open: File name too long"));
  EXPECT_THAT(why(folder.path()), HasSubstr("is not a file"));
}

// It would end the message that quotes it.
TEST_F(ConfigTest, NulIsRefusedInAFile) {
  const auto error_in = [&](const std::string& text) { return message_of<ConfigError>([&] { config.load_text(text, "r"); }); };
  EXPECT_EQ(error_in("[optim]\nname = \"a\\u0000b\""), "r, line 2: optim.name holds the character \\u0000; leave it out");
  EXPECT_EQ(error_in("[optim]\n\"a\\u0000b\" = 1"), "r, line 2: a key in [optim] holds the character \\u0000; leave it out");
  EXPECT_EQ(error_in("\"a\\u0000b\" = 1"), "r, line 1: the name of a section holds the character \\u0000; leave it out");
}

TEST_F(ConfigTest, WhatItPrintsReadsBackTheSame) {
  config.set("optim.rate=3e-05");
  config.set("optim.betas=[1, 2]");
  const std::string printed = config.toml();
  Optim other;
  Config again;
  again.bind("optim", "the optimizer", other);
  again.load(file(printed));
  EXPECT_EQ(again.toml(), printed);
  EXPECT_EQ(other.rate, 3e-05);
}

TEST(Suggest, CountsSwapsAsOneSlip) {
  EXPECT_EQ(edit_distance("rate", "rate"), 0);
  EXPECT_EQ(edit_distance("raet", "rate"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("resnet18", "resnet50"), 2);
  const std::string_view words[] = {"resnet18", "vgg16"};
  EXPECT_EQ(nearest("resnet", words), "resnet18");
  EXPECT_EQ(nearest("transformer", words), "");
}

TEST(Registry, FindsByKeyAndSuggests) {
  static constexpr Entry<int (*)()> kRows[] = {{"one", "the first", [] { return 1; }}, {"two", "the second", [] { return 2; }}};
  const std::span<const Entry<int (*)()>> table(kRows);
  EXPECT_EQ(find(table, "number", "two").make(), 2);
  try {
    find(table, "number", "twoo");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "unknown number 'twoo'; did you mean 'two'?");
  }
}

TEST(Clock, VirtualTimeMovesOnlyForward) {
  VirtualClock clock;
  clock.advance(Nanoseconds(5));
  EXPECT_EQ(clock.now(), Nanoseconds(5));
  EXPECT_THROW(clock.advance_to(Nanoseconds(4)), InternalError);
}

}  // namespace
}  // namespace paceline
