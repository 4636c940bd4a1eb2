// A probe of this machine, as small as can be: what it says, not how fast the machine is.
#include "paceline/measure/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "tests/message_of.h"

namespace paceline::measure {
namespace {

ProbeOptions smallest() { return {.seconds = 0, .largest_product = 1e6, .largest_message = 8 << 10}; }

std::vector<perf::Cluster> probed(int workers, const comm::CommConfig& config, const Say& say = {}) {
  std::vector<perf::Cluster> clusters(static_cast<std::size_t>(workers));
  play({}, workers, config, say, [&](Rank& rank) {
    const SteadyClock clock;
    clusters[static_cast<std::size_t>(rank.comm.rank())] = probe(rank, smallest(), clock);
  });
  return clusters;
}

void expect_measured(const perf::Link& link) {
  for (const perf::Quantity& quantity : {link.latency, link.bandwidth, link.duplex}) {
    EXPECT_GT(quantity.value, 0);
    EXPECT_EQ(quantity.source, perf::Source::measured);
  }
}

TEST(Probe, MeasuresEveryValueOfAHost) {
  std::vector<std::string> said;
  const std::vector<perf::Cluster> clusters = probed(2, {}, [&](const std::string& what) { said.push_back(what); });
  const perf::Cluster& cluster = clusters[0];
  EXPECT_TRUE(clusters[0] == clusters[1]) << "all ranks have the same";
  EXPECT_FALSE(said.empty());
  EXPECT_EQ(cluster.hosts, 1);
  EXPECT_EQ(cluster.devices, 2);
  const perf::Device& device = cluster.device;
  for (const perf::Quantity& quantity : {device.flops, device.memory_bandwidth, device.memory, device.launch, device.update_bandwidth,
                                         device.reduce_bandwidth, device.page_bandwidth, device.slowdown}) {
    EXPECT_GT(quantity.value, 0);
    EXPECT_EQ(quantity.source, perf::Source::measured);
  }
  EXPECT_GE(device.slowdown.value, 1);
  for (const perf::Efficiency& efficiency : {device.products, device.convolutions}) {
    EXPECT_TRUE(efficiency.known());
    EXPECT_EQ(efficiency.source, perf::Source::measured);
  }
  expect_measured(cluster.inside);
  EXPECT_TRUE(cluster.between == cluster.inside);
  for (const char* algorithm : {"auto", "ring", "tree"})
    EXPECT_GT(perf::measured_seconds(cluster, "allreduce", algorithm, 2, 2, 1024).value_or(0), 0) << algorithm;
  for (const char* collective : {"reduce_scatter", "all_gather", "broadcast"})
    EXPECT_GT(perf::measured_seconds(cluster, collective, "auto", 2, 2, 1024).value_or(0), 0) << collective;
  perf::Cluster written = cluster;
  written.device.name = "cpu";
  EXPECT_TRUE(perf::read_cluster(to_toml(written), "x.toml") == written) << to_toml(written);
}

TEST(Probe, TellsLinksInsideAHostFromThoseBetweenHosts) {
  comm::CommConfig config;
  config.per_host = 2;  // four ranks count as two hosts
  const perf::Cluster cluster = probed(4, config)[3];
  EXPECT_EQ(cluster.hosts, 2);
  EXPECT_EQ(cluster.devices, 2);
  expect_measured(cluster.inside);
  expect_measured(cluster.between);
  EXPECT_NE(cluster.inside.name, cluster.between.name);
  EXPECT_TRUE(perf::measured_seconds(cluster, "allreduce", "auto", 4, 2, 1024));
}

TEST(Probe, OfOneDeviceHasADefaultLink) {
  const perf::Cluster cluster = probed(1, {})[0];
  EXPECT_EQ(cluster.processes(), 1);
  EXPECT_EQ(cluster.between.bandwidth.source, perf::Source::standard);
  EXPECT_TRUE(cluster.collectives.empty());
  EXPECT_EQ(cluster.device.flops.source, perf::Source::measured);
}

TEST(Play, ThrowsWhatARankThrew) {
  const auto fail = [](Rank& rank) {
    if (rank.comm.rank() == 1) throw ConfigError("rank 1 has no such thing");
    rank.meet();
  };
  EXPECT_THAT(message_of<ConfigError>([&] { play({}, 3, {}, {}, fail); }), testing::HasSubstr("rank 1"));
}

TEST(Rank, AgreesOnWhatTheFirstHasAndTakesMeans) {
  std::vector<double> means(3);
  std::vector<std::int64_t> numbers(3);
  play({}, 3, {}, {}, [&](Rank& rank) {
    const auto own = static_cast<std::size_t>(rank.comm.rank());
    means[own] = rank.mean(static_cast<double>(own)), numbers[own] = rank.agreed(7 + rank.comm.rank());
  });
  EXPECT_THAT(means, testing::Each(1));
  EXPECT_THAT(numbers, testing::Each(7));
}

}  // namespace
}  // namespace paceline::measure
