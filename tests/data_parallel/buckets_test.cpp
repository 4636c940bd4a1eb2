// Buckets that leave in the middle of a pass: when they are begun, when they are treated, and what of that the training thread waits for.
#include "paceline/data_parallel/buckets.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "paceline/comm/engine.h"

namespace paceline::data_parallel {
namespace {

constexpr std::chrono::milliseconds kExchange(3), kUpdate(5);

/// Four tensors, a bucket each, of which the last is complete first. What becomes of them: "b3" begun, "t3" treated, "|" the pass is over.
class InPass : public testing::Test {
 protected:
  std::string play(bool begins) {
    std::string seen;
    const auto note = [&](char what) {
      return [&seen, what](const Bucket& bucket) { seen += what, seen += std::to_string(bucket.first_entry) + " "; };
    };
    BucketLane lane(
        arena_, *alone_, clock_,
        [&](const Bucket& bucket) {
          note('t')(bucket);
          clock_.advance(kExchange + kUpdate);
          return kUpdate;
        },
        begins ? BucketLane::Begin(note('b')) : nullptr);
    lane.configure(cut_buckets(arena_, 1), Leave::in_pass);
    EXPECT_EQ(lane.buckets().size(), 4u);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t entry = 4; entry-- > 0;) lane.ready(entry, entry + 1);
      seen += "| ";
      lane.finish();
    }
    EXPECT_DOUBLE_EQ(lane.exposed_s(), 8 * seconds(kExchange)) << "of both passes, inside of them too";
    EXPECT_DOUBLE_EQ(lane.busy_s(), 8 * seconds(kExchange));
    return seen;
  }

  const tensor::Arena arena_{{{"a", {64}}, {"b", {64}}, {"c", {64}}, {"d", {64}}}, {.tensor = at::kFloat}};
  const std::unique_ptr<comm::Communicator> alone_ = std::move(comm::local_group(1).front());
  VirtualClock clock_;
};

TEST_F(InPass, ABucketIsTreatedWhenItIsFull) {
  const std::string pass = "t3 t2 t1 t0 | ";
  EXPECT_EQ(play(false), pass + pass);
}

TEST_F(InPass, ABucketThatIsBegunIsTreatedWhenTheNextOneIs) {
  const std::string pass = "b3 b2 t3 b1 t2 b0 t1 | t0 ";
  EXPECT_EQ(play(true), pass + pass);
}

}  // namespace
}  // namespace paceline::data_parallel
