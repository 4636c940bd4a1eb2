// Which rank runs where, and what is refused.
#include "paceline/launch/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "paceline/base/error.h"
#include "paceline/base/host.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/launch/this_host.h"

namespace paceline::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const Machine kMachine = {3, [](const std::string& host) { return host == "here"; }, 2};

template <class Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const ConfigError& error) {
    return error.what();
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}

std::string text(const Placement& placement) {
  std::string all;
  for (const Place& place : placement.places)
    all += std::to_string(place.rank) + "=" + place.host + "." + std::to_string(place.node) + ":" + std::to_string(place.local_rank) + "/" +
           std::to_string(place.local_size) + (place.here ? " " : "* ");
  return all;
}

TEST(Placement, OneHost) {
  EXPECT_EQ(text(place_ranks({.ranks = 2}, kMachine)), "0=.0:0/2 1=.0:1/2 ");
  EXPECT_EQ(place_ranks({}, kMachine).size, 3);  // a rank a core
  EXPECT_EQ(place_ranks({.per_node = 5}, kMachine).size, 5);
  EXPECT_TRUE(place_ranks({.ranks = 2}, kMachine).one_host());
}

TEST(Placement, FillsHostsInOrder) {
  const std::vector<Host> hosts = parse_hosts("far:2,here:3,last:1");
  EXPECT_EQ(text(place_ranks({.hosts = hosts}, kMachine)),
            "0=far.0:0/2* 1=far.0:1/2* 2=here.1:0/3 3=here.1:1/3 4=here.1:2/3 5=last.2:0/1* ");
  EXPECT_EQ(text(place_ranks({.hosts = hosts, .ranks = 3}, kMachine)), "0=far.0:0/2* 1=far.0:1/2* 2=here.1:0/1 ");
  EXPECT_EQ(place_ranks({.hosts = hosts, .per_node = 4}, kMachine).size, 12);
  EXPECT_FALSE(place_ranks({.hosts = hosts}, kMachine).one_host());
}

TEST(Placement, OneLauncherAHost) {
  const Placement placement = place_ranks({.per_node = 2, .nodes = 3, .node_rank = 1}, kMachine);
  EXPECT_EQ(placement.size, 6);
  EXPECT_EQ(text(placement), "2=.1:0/2 3=.1:1/2 ");
  EXPECT_EQ(parse_nodes("4"), 4);
  EXPECT_EQ(parse_nodes("2:2"), 2);
}

TEST(Placement, RefusesContradictions) {
  const auto refused = [](const Request& request) { return refusal([&] { place_ranks(request, kMachine); }); };
  const std::vector<Host> hosts = parse_hosts("a:2,b:1");
  EXPECT_THAT(refused({.hosts = hosts, .ranks = 4}), AllOf(HasSubstr("-np 4"), HasSubstr("3 slots of 2 hosts")));
  EXPECT_THAT(refused({.hosts = hosts, .nodes = 2}), HasSubstr("--nnodes"));
  EXPECT_THAT(refused({.ranks = 2, .per_node = 3}), HasSubstr("contradict"));
  EXPECT_THAT(refused({.nodes = 2}), HasSubstr("needs --node-rank"));
  EXPECT_THAT(refused({.nodes = 2, .node_rank = 2}), HasSubstr("--node-rank 2 must be below --nnodes 2"));
  EXPECT_THAT(refused({.ranks = 4, .nodes = 2, .node_rank = 0}), HasSubstr("--nproc-per-node"));
  EXPECT_THAT(refused({.ranks = 0}), HasSubstr("0 ranks"));
  for (const char* nodes : {"", "x", "0", "2:1", "1:4"}) EXPECT_THAT(refusal([&] { parse_nodes(nodes); }), HasSubstr("--nnodes")) << nodes;
}

TEST(Placement, RanksOfAHostInNumbersAndWords) {
  EXPECT_EQ(parse_per_node("4", kMachine), 4);
  EXPECT_EQ(parse_per_node("cpu", kMachine), 3);
  EXPECT_EQ(parse_per_node("auto", kMachine), 3);
  EXPECT_EQ(parse_per_node("gpu", kMachine), 2);
  EXPECT_THAT(refusal([] { parse_per_node("gpu", {3, {}}); }), HasSubstr("no /dev/nvidia0"));
  for (const char* wrong : {"many", "0", "-1", "4x", "", "3000000000", "99999999999999999999"})
    EXPECT_THAT(refusal([&] { parse_per_node(wrong, kMachine); }), HasSubstr("1 to 100000, nor cpu, gpu or auto")) << wrong;
}

TEST(Placement, TheWholeJobHasAMost) {
  EXPECT_THAT(refusal([] { place_ranks({.per_node = 100'000, .nodes = 100'000, .node_rank = 1}, kMachine); }),
              HasSubstr("10000000000 ranks"));
  const std::vector<Host> hosts(30'000, {"far", 1});
  EXPECT_THAT(refusal([&] { place_ranks({.hosts = hosts, .per_node = 100'000}, kMachine); }), HasSubstr("3000000000 ranks"));
}

TEST(Placement, ServersComeBeforeWorkers) {
  EXPECT_EQ(place_ranks({.servers = 2, .workers = 3}, kMachine).size, 5);
  EXPECT_EQ(text(place_ranks({.workers = 2}, kMachine)), text(place_ranks({.ranks = 2}, kMachine)));
  const std::vector<Host> hosts = parse_hosts("a:2,b:1");
  EXPECT_EQ(text(place_ranks({.hosts = hosts, .servers = 1, .workers = 2}, kMachine)), "0=a.0:0/2* 1=a.0:1/2* 2=b.1:0/1* ");
  const auto refused = [](const Request& request) { return refusal([&] { place_ranks(request, kMachine); }); };
  EXPECT_THAT(refused({.ranks = 4, .servers = 2}), HasSubstr("write --servers 2 --workers 4"));
  EXPECT_THAT(refused({.servers = 2}), HasSubstr("needs --workers"));
  EXPECT_THAT(refused({.ranks = 2, .workers = 2}), HasSubstr("same as -np"));
  EXPECT_THAT(refused({.per_node = 2, .servers = 1, .workers = 1}), HasSubstr("--nproc-per-node"));
  EXPECT_THAT(refused({.nodes = 2, .node_rank = 0, .servers = 1, .workers = 1}), HasSubstr("-H instead of --nnodes"));
  EXPECT_THAT(refused({.hosts = hosts, .servers = 2, .workers = 2}), HasSubstr("--servers 2 --workers 2 is more than the 3 slots"));
  EXPECT_THAT(refused({.servers = 2'000'000'000, .workers = 2'000'000'000}), HasSubstr("1 to"));
}

TEST(Hosts, OnTheCommandLine) {
  const std::vector<Host> hosts = parse_hosts("a:2,user@b,a:1");
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[0].slots, 3);  // named twice
  EXPECT_EQ(hosts[1].name, "user@b");
  EXPECT_EQ(hosts[1].slots, 1);
  for (const char* bad : {"", ",", "a:", "a:0", "a:-1", "a:x", "a,,b", ":2", "a b", "-oProxyCommand=x", "a;b", "a:99999999999"})
    EXPECT_THAT(refusal([&] { parse_hosts(bad); }), HasSubstr("host:slots")) << bad;
  std::string often = "a:100000";
  for (int i = 0; i < 21'500; ++i) often += ",a:100000";  // more slots than an int can count
  EXPECT_THAT(refusal([&] { parse_hosts(often); }), AllOf(HasSubstr("host a"), HasSubstr("100000")));
}

TEST(Hosts, InAFile) {
  const TemporaryFolder folder;
  const auto file = folder / "paceline_hostfile";
  const auto read = [&](const char* content) {
    std::ofstream(file) << content;
    return read_hostfile(file);
  };
  const std::vector<Host> hosts = read("# cluster\na slots=2 # fast\n\n  b\nc max_slots=8 slots=4\na slots=1\n");
  ASSERT_EQ(hosts.size(), 3U);
  EXPECT_EQ(hosts[0].slots, 3);
  EXPECT_EQ(hosts[1].slots, 1);
  EXPECT_EQ(hosts[2].slots, 4);
  EXPECT_THAT(refusal([&] { read("a\nb slots=two\n"); }),
              AllOf(HasSubstr("paceline_hostfile"), HasSubstr("line 2"), HasSubstr("slots=two")));
  EXPECT_THAT(refusal([&] { read("a 4\n"); }), HasSubstr("line 1"));
  EXPECT_THAT(refusal([&] { read("# nobody\n"); }), HasSubstr("names no host"));
  std::filesystem::resize_file(file, std::uintmax_t{1} << 30);
  EXPECT_THAT(refusal([&] { read_hostfile(file); }), AllOf(HasSubstr("paceline_hostfile"), HasSubstr("1073741824 bytes")));
  std::filesystem::remove(file);
  EXPECT_THAT(refusal([&] { read_hostfile(file); }), HasSubstr("paceline_hostfile"));
}

TEST(ThisHost, KnowsThisHost) {
  EXPECT_TRUE(is_this_host("localhost"));
  EXPECT_TRUE(is_this_host("127.0.0.1"));
  EXPECT_TRUE(is_this_host(host_name()));
  EXPECT_FALSE(is_this_host("some-other-host"));
}

TEST(ThisHost, TellsOthersNoLoopbackAddress) {
  try {
    EXPECT_FALSE(names_loopback(address_towards("somebody@localhost")));  // where a host's own name often leads
  } catch (const ConfigError& error) {                                    // nothing else is there
    EXPECT_THAT(error.what(), AllOf(HasSubstr("that localhost could reach"), HasSubstr("--master-addr")));
  }
}

TEST(ThisHost, ReservesPorts) {
  const ReservedPort one, other;
  EXPECT_GT(one.number(), 0);
  EXPECT_NE(one.number(), other.number());
}

}  // namespace
}  // namespace paceline::launch
