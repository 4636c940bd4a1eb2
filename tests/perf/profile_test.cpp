// Measured times of units: between batches, beyond them, and the place of what is wrong in a file.
#include "paceline/perf/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "paceline/graph/registry.h"
#include "tests/message_of.h"

namespace paceline::perf {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Work = schedule::Action::Work;

Profile profile() {
  const auto seconds = [](double scale) {
    return UnitSeconds{
        .forward = scale, .backward = 2 * scale, .input_gradients = 0.75 * scale, .weight_gradients = scale, .evaluation = 0.5};
  };
  const UnitProfile first{.name = "conv", .parameters = 100, .seconds = {{8, seconds(1)}, {32, seconds(3)}, {128, seconds(15)}}};
  const UnitProfile last{.name = "fc", .parameters = 7, .seconds = {{8, seconds(0.1)}}};
  ProfileTable table{.precision = Precision::fp32,
                     .workers = 1,
                     .threads = 2,
                     .units = {first, last},
                     .update_s = {{"sgd", 1e-9}},
                     .around_s = {{8, 0.25}, {24, -0.75}}};
  Profile made{.network = "lenet5", .device = "core", .tables = {table}};
  table.workers = 4, table.threads = 1;
  made.tables.push_back(table);
  return made;
}

TEST(Profile, LiesOnLinesBetweenMeasuredBatches) {
  const Profile of = profile();
  const ProfileTable& table = of.tables[0];
  EXPECT_DOUBLE_EQ(seconds_of(table, 0, Work::forward, 8).seconds, 1);
  EXPECT_DOUBLE_EQ(seconds_of(table, 0, Work::forward, 20).seconds, 2);
  EXPECT_DOUBLE_EQ(seconds_of(table, 0, Work::backward, 80).seconds, 18);
  EXPECT_DOUBLE_EQ(seconds_of(table, 0, Work::input_gradients, 32).seconds, 2.25);
  EXPECT_DOUBLE_EQ(seconds_of(table, 0, Work::weight_gradients, 128).seconds, 15);
  EXPECT_DOUBLE_EQ(evaluation_seconds(table, 0, 100).seconds, 0.5);
  EXPECT_FALSE(seconds_of(table, 0, Work::forward, 8).outside || seconds_of(table, 0, Work::forward, 128).outside);
}

TEST(Profile, SaysWhereItGoesBeyondWhatWasMeasured) {
  const Profile of = profile();
  const Timed more = seconds_of(of.tables[0], 0, Work::forward, 256), less = seconds_of(of.tables[0], 0, Work::forward, 2);
  EXPECT_DOUBLE_EQ(more.seconds, 31) << "along the last line";
  EXPECT_DOUBLE_EQ(less.seconds, 0.5) << "along the first line";
  EXPECT_TRUE(more.outside && less.outside);
  EXPECT_THAT(more.note, AllOf(HasSubstr("256"), HasSubstr("8 to 128")));
  EXPECT_DOUBLE_EQ(seconds_of(of.tables[0], 1, Work::forward, 16).seconds, 0.2) << "in proportion to the one batch";
  EXPECT_GE(seconds_of(of.tables[0], 0, Work::forward, 0).seconds, 0);
}

TEST(Profile, KnowsWhatAStepTakesAroundItsPasses) {
  const Profile of = profile();
  EXPECT_DOUBLE_EQ(around_seconds(of.tables[0], 8), 0.25);
  EXPECT_DOUBLE_EQ(around_seconds(of.tables[0], 12), 0) << "on the line between 8 and 24";
  EXPECT_DOUBLE_EQ(around_seconds(of.tables[0], 2), 0.25);
  EXPECT_DOUBLE_EQ(around_seconds(of.tables[0], 100), -0.75);
  EXPECT_DOUBLE_EQ(around_seconds({}, 8), 0);
}

TEST(Profile, TakesTheTableOfAsManyWorkersOrTheNextLarger) {
  const Profile of = profile();
  EXPECT_EQ(of.table(Precision::fp32, 1).workers, 1);
  EXPECT_EQ(of.table(Precision::fp32, 2).workers, 4);
  EXPECT_EQ(of.table(Precision::fp32, 8).workers, 4);
  EXPECT_THAT(message_of<ConfigError>([&] { of.table(Precision::bf16, 1); }),
              AllOf(HasSubstr("bf16"), HasSubstr("fp32"), HasSubstr("lenet5")));
}

TEST(Profile, KnowsUpdatesByOptimizer) {
  const Profile of = profile();
  EXPECT_DOUBLE_EQ(update_seconds(of.tables[0], "sgd", 1e6), 1e-3);
  EXPECT_THAT(message_of<ConfigError>([&] { update_seconds(of.tables[0], "adam", 1); }), AllOf(HasSubstr("adam"), HasSubstr("sgd")));
  EXPECT_THAT(message_of<ConfigError>([&] { seconds_of(of.tables[0], 2, Work::forward, 1); }), HasSubstr("2 units"));
}

TEST(Profile, IsOfOneNetworkAndOneSizeOfIt) {
  graph::ModelConfig config;
  config.network = "mlp", config.input = {1, 8, 8}, config.hidden = {16}, config.classes = 4;
  const graph::Graph graph = graph::make_graph(config);
  const auto unit = [](const char* name, std::int64_t parameters) {
    return UnitProfile{.name = name, .parameters = parameters, .seconds = {{8, {}}}};
  };
  Profile of{.network = "mlp", .device = "core", .tables = {{.units = {unit("fc1", 65 * 16), unit("fc2", 17 * 4)}}}};
  require_network(of, graph, "x.json");
  const auto refusal = [&] { return message_of<ConfigError>([&] { require_network(of, graph, "x.json"); }); };
  of.tables[0].units[1].parameters = 17 * 10;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("x.json"), HasSubstr("fc2"), HasSubstr("170"), HasSubstr("68"))) << "as many units, other classes";
  of.tables[0].units.pop_back();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("x.json"), HasSubstr("1 units"), HasSubstr("2")));
  of.network = "lenet5";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("x.json"), HasSubstr("lenet5"), HasSubstr("mlp")));
}

TEST(Profile, IsOfTheClustersKindOfDevice) {
  Profile of = profile();
  const auto refusal = [&](const char* cluster) {
    return message_of<ConfigError>([&] { require_device(of, find_cluster(cluster), "x.json"); });
  };
  of.device = "cpu";
  require_device(of, find_cluster("skylake"), "x.json");
  EXPECT_THAT(refusal("h100"), AllOf(HasSubstr("x.json"), HasSubstr("cpu"), HasSubstr("h100"), HasSubstr("gpu"), HasSubstr("device=cuda")));
  of.device = "nvidia_h200";
  require_device(of, find_cluster("h100"), "x.json");
  EXPECT_THAT(refusal("skylake"), AllOf(HasSubstr("nvidia_h200"), HasSubstr("skylake"), HasSubstr("train.device=cpu")));
  Cluster unsaid = find_cluster("skylake");
  unsaid.device.kind.clear();
  require_device(of, unsaid, "x.json");
}

TEST(Profile, ReadsBack) { EXPECT_TRUE(read_profile(to_json(profile()), "x.json") == profile()) << to_json(profile()); }

TEST(Profile, NamesFileAndPlaceOfWhatIsWrong) {
  const std::string text = to_json(profile());
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return message_of<ConfigError>([&] { read_profile(other, "x.json"); });
  };
  EXPECT_THAT(refusal("{", ""), HasSubstr("x.json"));
  EXPECT_THAT(refusal("\"network\"", "\"net\""), AllOf(HasSubstr("x.json"), HasSubstr("network")));
  EXPECT_THAT(refusal("\"fp32\"", "\"fp31\""), AllOf(HasSubstr("x.json: tables[0].precision"), HasSubstr("'fp32'")));
  EXPECT_THAT(refusal("\"workers\": 1", "\"workers\": 0"), AllOf(HasSubstr("x.json: tables[0].workers"), HasSubstr("0")));
  EXPECT_THAT(refusal("\"forward\": 3.0", "\"forward\": 1e999"), HasSubstr("x.json"));
  EXPECT_THAT(refusal("\"forward\": 3.0", "\"forward\": -3.0"),
              AllOf(HasSubstr("tables[0].units[0].measured[1].forward"), HasSubstr("-3")));
  EXPECT_THAT(refusal("\"samples\": 8", "\"samples\": 0.5"), HasSubstr("tables[0].around_s[0].samples"));
  EXPECT_THAT(refusal("\"samples\": 32", "\"samples\": 0.5"), HasSubstr("tables[0].units[0].measured[1].samples"));
  EXPECT_THAT(refusal("\"sgd\": 1e-09", "\"sgd\": \"fast\""), HasSubstr("tables[0].update_s.sgd"));
}

}  // namespace
}  // namespace paceline::perf
