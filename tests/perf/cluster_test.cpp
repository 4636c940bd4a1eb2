// Cluster files: what they say, where every value came from, and the file, line and key of what is wrong.
#include "paceline/perf/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "paceline/base/error.h"
#include "tests/message_of.h"

namespace paceline::perf {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kFile = R"toml([cluster]
name = "pair"
hosts = 6
topology = "mesh"
sides = [3, 4]
link = "ethernet"

[host]
devices = 2
link = "memory"

[device]
flops = "96 Gflop/s (measured)"
memory_bandwidth = "12.8 GB/s (spec)"
memory = "4 GB (default)"

[link.ethernet]
latency = "30 us (measured)"
bandwidth = "1 Gb/s (spec)"

[link.memory]
bandwidth = "10 GB/s (default)"
)toml";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kFile;
  return text.replace(text.find(from), from.size(), to);
}

std::string refusal(const std::string& text) {
  return message_of<ConfigError>([&] { read_cluster(text, "x.toml"); });
}

TEST(ClusterFile, IsReadWithItsUnitsAndSources) {
  const Cluster cluster = read_cluster(kFile, "x.toml");
  EXPECT_EQ(cluster.processes(), 12);
  EXPECT_EQ(cluster.topology, Topology::mesh);
  EXPECT_THAT(cluster.sides, ElementsAre(3, 4));
  EXPECT_EQ(cluster.device.flops, (Quantity{96e9, Source::measured}));
  EXPECT_EQ(cluster.device.memory_bandwidth, (Quantity{12.8e9, Source::spec}));
  EXPECT_EQ(cluster.device.memory, (Quantity{4e9, Source::standard}));
  EXPECT_EQ(cluster.device.blocks, Blocks{});
  EXPECT_EQ(cluster.between.bandwidth, (Quantity{1e9 / 8, Source::spec}));
  EXPECT_EQ(cluster.between.latency, (Quantity{30e-6, Source::measured}));
  EXPECT_EQ(cluster.inside.name, "memory");
  EXPECT_EQ(cluster.inside.latency.source, Source::standard) << "it is not in the file";
}

TEST(ClusterFile, OfEveryPresetReadsBack) {
  for (const auto& row : clusters()) {
    const Cluster cluster = row.make();
    EXPECT_EQ(cluster.name, row.key);
    const std::string text = to_toml(cluster);
    EXPECT_TRUE(read_cluster(text, "x.toml") == cluster) << text << to_toml(read_cluster(text, "x.toml"));
  }
}

TEST(ClusterFile, OfAMeshReadsBack) {
  Cluster cluster = read_cluster(kFile, "x.toml");
  cluster.device.blocks = {128, 256, 64, Source::measured};
  cluster.device.flops.value = 1234567890123.4567;
  EXPECT_TRUE(read_cluster(to_toml(cluster), "x.toml") == cluster) << to_toml(cluster);
}

/// As `paceline probe` writes it.
Cluster measured_cluster() {
  Cluster cluster = read_cluster(kFile, "x.toml");
  const auto measured = [](double value) { return Quantity{value, Source::measured}; };
  Device& device = cluster.device;
  device.products = {{{2e6, 0.413}, {1.5e9, 0.97}}, Source::measured};
  device.convolutions = {{{3456789, 0.2}, {1e12, 1}}, Source::measured};
  device.bf16 = {.flops = measured(3e11), .products = {{{1e6, 0.5}}, Source::measured}};
  device.launch = measured(1.25e-6), device.update_bandwidth = measured(9e9), device.reduce_bandwidth = measured(4e9),
  device.page_bandwidth = measured(5e9);
  device.slowdown = measured(1.35);
  device.host_link = measured(55e9), device.host_updates = {30e9, Source::spec};
  cluster.inside.gap = measured(7e-7), cluster.inside.duplex = measured(1.25);
  cluster.collectives = {{.collective = "allreduce",
                          .algorithm = "ring",
                          .ranks = 4,
                          .per_host = 2,
                          .points = {{1024, 4e-6}, {1e6, 1e-3}},
                          .source = Source::measured},
                         {.collective = "all_gather", .algorithm = "auto", .ranks = 2, .points = {{8, 1e-6}}, .source = Source::spec}};
  return cluster;
}

TEST(ClusterFile, OfMeasurementsReadsBack) {
  const Cluster cluster = measured_cluster();
  EXPECT_TRUE(read_cluster(to_toml(cluster), "x.toml") == cluster) << to_toml(cluster);
}

TEST(ClusterFile, NamesFileLineAndKeyOfAWrongMeasurement) {
  const std::string text = to_toml(measured_cluster());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    return refusal(other.replace(other.find(from), from.size(), to));
  };
  EXPECT_THAT(changed("2 Mflop: 41.3%", "2 Mflop: 541.3%"), AllOf(HasSubstr("line 19: device.products"), HasSubstr("541.3%")));
  EXPECT_THAT(changed("2 Mflop: 41.3%", "2 Mbyte: 41.3%"), AllOf(HasSubstr("line 19: device.products"), HasSubstr("Mbyte")));
  EXPECT_THAT(changed("2 Mflop: 41.3%", "2 Gflop: 41.3%"), AllOf(HasSubstr("line 19: device.products"), HasSubstr("1.5 Gflop")));
  EXPECT_THAT(changed("1.35 x", "0.9 x"), AllOf(HasSubstr("device.slowdown"), HasSubstr("0.9 x")));
  EXPECT_THAT(changed("1.25 x", "3 x"), AllOf(HasSubstr("link.memory.duplex"), HasSubstr("3 x")));
  EXPECT_THAT(changed("\"allreduce\"", "\"allreduced\""), AllOf(HasSubstr("collective.m00000.collective"), HasSubstr("allreduce")));
  EXPECT_THAT(changed("\"ring\"", "\"rings\""), AllOf(HasSubstr("collective.m00000.algorithm"), HasSubstr("ring")));
  EXPECT_THAT(changed("1 MB: ", "1 B: "), AllOf(HasSubstr("collective.m00000.times"), HasSubstr("1 B")));
  EXPECT_THAT(changed("[device.bf16]", "[device.bf8]"), HasSubstr("'device.bf16'"));
  EXPECT_THAT(changed("[device.bf16]\nflops = ", "[device.bf16]\nflop = "), HasSubstr("flops"));
}

TEST(Efficiency, LiesOnLinesOverTheLogarithmOfTheSize) {
  const Efficiency efficiency{{{1e6, 0.2}, {1e8, 0.6}, {1e9, 0.9}}, Source::measured};
  EXPECT_DOUBLE_EQ(efficiency.at(1e7), 0.4);
  EXPECT_DOUBLE_EQ(efficiency.at(1e8), 0.6);
  EXPECT_DOUBLE_EQ(efficiency.at(1), 0.2);
  EXPECT_DOUBLE_EQ(efficiency.at(1e15), 0.9);
  EXPECT_TRUE(efficiency.covers(1e6) && efficiency.covers(1e9));
  EXPECT_FALSE(efficiency.covers(9e5) || efficiency.covers(1.1e9) || Efficiency{}.covers(1));
  EXPECT_EQ(Efficiency{}.at(1e7), 1) << "nothing is known, so nothing is lost";
}

TEST(CollectiveTimes, LieOnLinesOverBothLogarithms) {
  const Cluster cluster = measured_cluster();
  const auto seconds = [&](double bytes) { return measured_seconds(cluster, "allreduce", "ring", 4, 2, bytes).value(); };
  EXPECT_DOUBLE_EQ(seconds(1), 4e-6) << "the least that it takes";
  EXPECT_DOUBLE_EQ(seconds(1024), 4e-6);
  EXPECT_NEAR(seconds(32000), std::sqrt(4e-6 * 1e-3), 1e-9) << "halfway between both";
  EXPECT_DOUBLE_EQ(seconds(3e6), 3e-3) << "in proportion";
  EXPECT_FALSE(measured_seconds(cluster, "allreduce", "ring", 8, 2, 1024));
  EXPECT_FALSE(measured_seconds(cluster, "allreduce", "ring", 4, 4, 1024));
  EXPECT_FALSE(measured_seconds(cluster, "allreduce", "tree", 4, 2, 1024));
}

TEST(Device, OffloadsByRulesOfThumbWhereNothingIsSaid) {
  Device device;
  EXPECT_EQ(device.host_link_or_default(), (Quantity{16e9, Source::standard}));
  EXPECT_EQ(device.host_updates_or_default(), (Quantity{40e9, Source::standard}));
  device.host_link = {1e9, Source::measured};
  EXPECT_EQ(device.host_link_or_default(), device.host_link);
}

TEST(Device, StandsInForWhatWasNotMeasured) {
  const Device device = measured_cluster().device;
  EXPECT_EQ(device.speed(Precision::bf16).flops.value, 3e11);
  EXPECT_EQ(device.speed(Precision::fp16).flops.value, 96e9) << "no faster than fp32";
  EXPECT_DOUBLE_EQ(device.speed(Precision::fp32).convolution_flops_per_s(1e12), 96e9);
  EXPECT_DOUBLE_EQ(device.speed(Precision::bf16).convolution_flops_per_s(1e12), 1.5e11) << "taken for products";
  EXPECT_DOUBLE_EQ(costs_of(measured_cluster()).reduce_s_per_byte, 1 / 4e9);
  EXPECT_DOUBLE_EQ(costs_of(measured_cluster()).inside.gap_s, 7e-7);
  EXPECT_DOUBLE_EQ(costs_of(read_cluster(kFile, "x.toml")).reduce_s_per_byte, 3 / 12.8e9);
}

TEST(ClusterFile, NamesFileLineAndKeyOfAWrongValue) {
  EXPECT_THAT(refusal(with("\"12.8 GB/s (spec)\"", "12.8")),
              AllOf(HasSubstr("x.toml, line 14: device.memory_bandwidth"), HasSubstr("unit")));
  EXPECT_THAT(refusal(with("12.8 GB/s", "12.8")), AllOf(HasSubstr("x.toml, line 14: device.memory_bandwidth"), HasSubstr("unit")));
  EXPECT_THAT(refusal(with("12.8 GB/s", "12.8 GBs")), AllOf(HasSubstr("line 14: device.memory_bandwidth"), HasSubstr("'GB/s'")));
  EXPECT_THAT(refusal(with("12.8 GB/s", "12.8 GB")), HasSubstr("line 14: device.memory_bandwidth"));
  EXPECT_THAT(refusal(with("12.8 GB/s", "-12.8 GB/s")), AllOf(HasSubstr("line 14: device.memory_bandwidth"), HasSubstr("-12.8")));
  EXPECT_THAT(refusal(with("1 Gb/s", "-1 Gb/s")), AllOf(HasSubstr("line 19: link.ethernet.bandwidth"), HasSubstr("-1 Gb/s")));
  EXPECT_THAT(refusal(with("1 Gb/s", "0 Gb/s")), HasSubstr("line 19: link.ethernet.bandwidth"));
  EXPECT_THAT(refusal(with("1 Gb/s", "1e999 Gb/s")), HasSubstr("line 19: link.ethernet.bandwidth"));
  EXPECT_THAT(refusal(with("1 Gb/s", "fast")), AllOf(HasSubstr("line 19: link.ethernet.bandwidth"), HasSubstr("number")));
  EXPECT_THAT(refusal(with("(measured)\"\nmem", "\"\nmem")), AllOf(HasSubstr("line 13: device.flops"), HasSubstr("measured")));
  EXPECT_THAT(refusal(with("(measured)\"\nmem", "(guessed)\"\nmem")), AllOf(HasSubstr("line 13: device.flops"), HasSubstr("guessed")));
  EXPECT_THAT(refusal(with("hosts = 6", "hosts = 0")), HasSubstr("line 3: cluster.hosts"));
  EXPECT_THAT(refusal(with("\"mesh\"", "\"ring\"")), AllOf(HasSubstr("line 4: cluster.topology"), HasSubstr("torus")));
}

TEST(ClusterFile, NamesALinkToNowhere) {
  EXPECT_THAT(refusal(with("link = \"ethernet\"", "link = \"ethernot\"")),
              AllOf(HasSubstr("x.toml, line 6: cluster.link"), HasSubstr("'ethernot'"), HasSubstr("'ethernet'")));
  EXPECT_THAT(refusal(with("link = \"memory\"\n", "")), HasSubstr("x.toml, line 8: host.link"));
  EXPECT_THAT(refusal(with("[link.memory]", "[link.extra]\nbandwidth = \"1 GB/s (spec)\"\n[link.memory]")),
              AllOf(HasSubstr("x.toml, line 21: link.extra"), HasSubstr("host.link")));
}

TEST(ClusterFile, WithoutLinksSaysHowToWriteOne) {
  const std::string none = kFile.substr(0, kFile.find("[link.ethernet]"));
  EXPECT_THAT(refusal(none), AllOf(HasSubstr("x.toml, line 6: cluster.link"), HasSubstr("[link.ethernet]"),
                                   HasSubstr("bandwidth = \"10 Gb/s (spec)\""), Not(HasSubstr("known:"))));
  std::string unnamed = none;
  unnamed.replace(unnamed.find("link = \"ethernet\"\n"), 18, "");
  EXPECT_THAT(refusal(unnamed), AllOf(HasSubstr("cluster.link is missing"), HasSubstr("[link.NAME]")));
  const std::string alone = none.substr(none.find("[device]"));
  EXPECT_THAT(refusal(alone), AllOf(HasSubstr("cluster.link is missing"), HasSubstr("[link.NAME]")));
  // What is written as it says is read.
  EXPECT_EQ(read_cluster(none + "[link.ethernet]\nbandwidth = \"10 Gb/s (spec)\"\nlatency = \"30 us (default)\"\n[link.memory]\nbandwidth "
                                "= \"10 GB/s (spec)\"\n",
                         "x.toml")
                .between.latency,
            (Quantity{30e-6, Source::standard}));
}

TEST(ClusterFile, NamesWhatIsMissingOrUnknown) {
  EXPECT_THAT(refusal(with("bandwidth = \"10 GB/s (default)\"\n", "")), HasSubstr("x.toml, line 21: link.memory.bandwidth"));
  EXPECT_THAT(refusal(with("memory = \"4 GB (default)\"\n", "")), HasSubstr("x.toml, line 12: device.memory"));
  EXPECT_THAT(refusal(""), HasSubstr("x.toml: device.flops"));
  EXPECT_THAT(refusal(with("flops =", "flop =")), AllOf(HasSubstr("x.toml, line 13"), HasSubstr("'flops'")));
  EXPECT_THAT(refusal(with("[device]", "[devices]")), AllOf(HasSubstr("x.toml, line 12"), HasSubstr("'device'")));
  EXPECT_THAT(refusal(with("[host]", "[host")), HasSubstr("x.toml, line 8"));
  EXPECT_THAT(refusal("a = 1"), HasSubstr("x.toml, line 1"));
  EXPECT_THAT(refusal(with("sides = [3, 4]", "sides = [3, 5]")),
              AllOf(HasSubstr("line 5: cluster.sides"), HasSubstr("15"), HasSubstr("12")));
  EXPECT_THAT(refusal(with("\"mesh\"", "\"star\"")), HasSubstr("line 5: cluster.sides"));
  EXPECT_THAT(refusal(with("memory_bandwidth", "blocks = \"480 x 0 x 384 (spec)\"\nmemory_bandwidth")),
              HasSubstr("line 14: device.blocks"));
}

TEST(ClusterFile, OfOneHostOrOneDeviceNeedsOneLink) {
  const std::string one_host =
      with("hosts = 6\ntopology = \"mesh\"\nsides = [3, 4]\nlink = \"ethernet\"", "hosts = 1\nlink = \"ethernet\"");
  const Cluster cluster = read_cluster(one_host, "x.toml");
  EXPECT_EQ(cluster.between.name, "memory") << "there is no second host";
  std::string alone = one_host;
  const Cluster single = read_cluster(alone.replace(alone.find("devices = 2"), 11, "devices = 1"), "x.toml");
  EXPECT_EQ(single.inside.name, "ethernet");
  for (const Cluster& each : {cluster, single}) EXPECT_TRUE(read_cluster(to_toml(each), "x.toml") == each) << to_toml(each);
}

TEST(ClusterFile, TakesPlainNamesOnly) {
  EXPECT_THAT(refusal(with("name = \"pair\"", "name = 'a\"b'")), HasSubstr("x.toml, line 2: cluster.name"));
  EXPECT_THAT(refusal(with("[link.memory]", "[link.\"a b\"]")), AllOf(HasSubstr("x.toml, line 21"), HasSubstr("a b")));
}

TEST(FindCluster, FittedSpeedsAreNoDataSheets) {
  const Device device = find_cluster("p100").device;
  EXPECT_EQ(device.convolutions.source, Source::standard);
  EXPECT_EQ(device.host_link.source, Source::spec);
  EXPECT_EQ(device.host_updates.source, Source::standard);
}

TEST(FindCluster, KnowsPresetsAndFiles) {
  EXPECT_EQ(find_cluster("skylake").hosts, 1000);
  EXPECT_THAT(message_of<ConfigError>([] { find_cluster("skylark"); }), HasSubstr("'skylake'"));
  EXPECT_THAT(message_of<DataError>([] { find_cluster("no/such.toml"); }), HasSubstr("no/such.toml"));
}

TEST(Quantity, TextReadsBackToTheSameBits) {
  for (const double value :
       {1e-9, 1e-300, 0.7123456789012345e-9, 0.5e-6, 3e-6, 1.0, 12.8e9, 17.068e9, 1e9 / 3, 3.125e9, 8.96e12, 1e20, 7.0})
    for (const Dimension dimension : {Dimension::flops, Dimension::bandwidth, Dimension::bytes, Dimension::time, Dimension::factor})
      EXPECT_EQ(parse_quantity(text_of({value, Source::spec}, dimension), dimension).value, value)
          << text_of({value, Source::spec}, dimension);
  EXPECT_EQ(text_of({0.5e-6, Source::spec}, Dimension::time), "500 ns (spec)");
  EXPECT_EQ(text_of({25e9, Source::measured}, Dimension::bandwidth), "25 GB/s (measured)");
}

TEST(Sides, AreAsSquareAsDivisorsAllow) {
  EXPECT_THAT(square_sides(1000), ElementsAre(25, 40));
  EXPECT_THAT(square_sides(36), ElementsAre(6, 6));
  EXPECT_THAT(square_sides(7), ElementsAre(1, 7));
}

}  // namespace
}  // namespace paceline::perf
