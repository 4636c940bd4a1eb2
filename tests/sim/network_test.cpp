#include "paceline/sim/network.h"

#include <gtest/gtest.h>

#include <map>

namespace paceline::sim {
namespace {

/// When each transfer has ended, by token, in seconds.
std::map<std::int64_t, double> ends(EventLoop& loop, Network& network) {
  std::map<std::int64_t, double> ended;
  for (network.settle(); loop.next(); network.settle()) {
    const std::int64_t token = network.on_event(loop.advance());
    if (token >= 0) ended[token] = seconds(loop.now());
  }
  return ended;
}

TEST(Network, AloneATransferTakesItsLatencyAndItsTime) {
  EventLoop loop;
  Network network(loop);
  network.add_link(1e9);
  network.start(Nanoseconds(5000), 0.25, {{0, 1}}, 7);
  EXPECT_NEAR(ends(loop, network).at(7), 0.250005, 2e-9);
  EXPECT_NEAR(network.busy_s(0), 0.25, 1e-9);
}

TEST(Network, ThoseOnOneLinkShareItFairly) {
  EventLoop loop;
  Network network(loop);
  network.add_link(1e9);
  for (int i = 0; i < 4; ++i) network.start(Nanoseconds(0), 1.0 + i, {{0, 1}}, i);
  // Processor sharing: the first ends after 4 · 1, the next has 1 left and three share, …
  const auto ended = ends(loop, network);
  EXPECT_NEAR(ended.at(0), 4, 1e-6);
  EXPECT_NEAR(ended.at(1), 7, 1e-6);
  EXPECT_NEAR(ended.at(2), 9, 1e-6);
  EXPECT_NEAR(ended.at(3), 10, 1e-6);
}

TEST(Network, TransfersThatFitBesideEachOtherDoNotSlowDown) {
  EventLoop loop;
  Network network(loop);
  network.add_link(1e9);
  network.start(Nanoseconds(0), 2, {{0, 0.5}}, 0);
  network.start(Nanoseconds(0), 3, {{0, 0.5}}, 1);
  const auto ended = ends(loop, network);
  EXPECT_NEAR(ended.at(0), 2, 1e-6);
  EXPECT_NEAR(ended.at(1), 3, 1e-6);
}

TEST(Network, WhatAFullLinkLeavesGoesToTheOthersOfAnotherLink) {
  // Max-min: links A and B; x crosses both, y and z cross A, w crosses B. A has three users: 1/3 each. On B, w gets the remaining 2/3.
  EventLoop loop;
  Network network(loop);
  network.add_link(1e9), network.add_link(1e9);
  network.start(Nanoseconds(0), 1, {{0, 1}, {1, 1}}, 0);
  network.start(Nanoseconds(0), 1, {{0, 1}}, 1);
  network.start(Nanoseconds(0), 1, {{0, 1}}, 2);
  network.start(Nanoseconds(0), 1, {{1, 1}}, 3);
  const auto ended = ends(loop, network);
  EXPECT_NEAR(ended.at(3), 1.5, 1e-6);
  for (const int i : {0, 1, 2}) EXPECT_NEAR(ended.at(i), 3, 1e-6) << i;
}

TEST(Network, OneThatComesLaterSlowsDownTheOneUnderWay) {
  EventLoop loop;
  Network network(loop);
  network.add_link(1e9);
  network.start(Nanoseconds(0), 2, {{0, 1}}, 0);
  network.start(Nanoseconds(1'000'000'000), 2, {{0, 1}}, 1);  // moves from second 1 on
  const auto ended = ends(loop, network);
  EXPECT_NEAR(ended.at(0), 3, 1e-6);
  EXPECT_NEAR(ended.at(1), 4, 1e-6);
}

}  // namespace
}  // namespace paceline::sim
