// Recorded work on the CPU, where every run is a plain call, and the streams that a GPU needs for it.
#include "paceline/tensor/recorded.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

#include "paceline/tensor/device.h"

namespace paceline::tensor {
namespace {

const c10::Device kHere(c10::kCPU);

TEST(Recorded, CallsTheWorkEveryTimeOnTheCpu) {
  for (const bool record : {false, true}) {
    Recorded recorded(kHere, record);
    int calls = 0;
    for (int i = 0; i < 10; ++i) recorded.run([&] { ++calls; });
    recorded.forget();
    recorded.run([&] { ++calls; });
    EXPECT_EQ(calls, 11);
  }
}

TEST(Recorded, MovesAndStillRuns) {
  Recorded first(kHere, true);
  Recorded second(std::move(first));
  Recorded third(kHere, false);
  third = std::move(second);
  int calls = 0;
  third.run([&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(Recorded, PassesErrorsOn) {
  Recorded recorded(kHere, true);
  EXPECT_THROW(recorded.run([] { throw std::runtime_error("no"); }), std::runtime_error);
  int calls = 0;
  recorded.run([&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(OwnStream, IsNothingOnTheCpu) {
  const OwnStream stream(kHere);
  EXPECT_EQ(current_stream(kHere), nullptr);
}

TEST(OwnStream, BelongsToOneOwnerAtATime) {
  if (!cuda_available()) GTEST_SKIP() << "needs a CUDA device";
  constexpr int kOwners = 40;  // more than LibTorch has streams
  const c10::Device gpu(c10::kCUDA, 0);
  std::vector<std::unique_ptr<OwnStream>> owners;
  std::set<void*> streams;
  for (int i = 0; i < kOwners; ++i) {
    owners.push_back(std::make_unique<OwnStream>(gpu));
    streams.insert(current_stream(gpu));
  }
  EXPECT_EQ(streams.size(), kOwners);
  while (!owners.empty()) owners.pop_back();
  const OwnStream next(gpu);
  EXPECT_TRUE(streams.contains(current_stream(gpu))) << "streams that were given back are used again";
}

}  // namespace
}  // namespace paceline::tensor
