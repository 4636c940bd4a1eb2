// A thread that does jobs one after the other.
#include "paceline/data_parallel/lane.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <vector>

namespace paceline::data_parallel {
namespace {

TEST(Lane, DoesJobsInTheirOrderBesideTheCaller) {
  std::vector<int> done;
  std::promise<void> gate;
  Lane lane;
  lane.start([&, open = gate.get_future().share()] { open.wait(), done.push_back(1); });
  const Lane::Ticket second = lane.start([&] { done.push_back(2); });
  gate.set_value();  // reached while the first job still waits
  lane.wait(second);
  EXPECT_EQ(done, (std::vector<int>{1, 2}));
  lane.start([&] { done.push_back(3); });
  lane.wait();
  EXPECT_EQ(done, (std::vector<int>{1, 2, 3}));
  lane.wait(second);  // long done
}

TEST(Lane, EndsWithTheFirstJobThatThrows) {
  bool later = false;
  Lane lane;
  const Lane::Ticket good = lane.start([] {});
  lane.wait(good);
  lane.start([] { throw std::runtime_error("broke"); });
  lane.start([&] { later = true; });
  EXPECT_THROW(lane.wait(), std::runtime_error);
  EXPECT_THROW(lane.wait(), std::runtime_error) << "whoever comes later hears of it, too";
  EXPECT_FALSE(later);
}

}  // namespace
}  // namespace paceline::data_parallel
