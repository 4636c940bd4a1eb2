// Recorded work on the CPU, where every run is a plain call.
#include "paceline/tensor/recorded.h"

#include <gtest/gtest.h>

#include <stdexcept>

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

}  // namespace
}  // namespace paceline::tensor
