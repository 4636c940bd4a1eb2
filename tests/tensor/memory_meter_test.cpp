#include "paceline/tensor/memory_meter.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

namespace paceline::tensor {
namespace {

TEST(MemoryMeter, CountsWhatThisThreadHolds) {
  constexpr std::int64_t kBytes = 4 << 20;
  const MemoryMeter meter;
  at::Tensor kept = at::empty({1 << 20});
  EXPECT_GE(meter.now(), kBytes);
  EXPECT_LT(meter.now(), kBytes + 4096);
  { const at::Tensor passing = at::empty({1 << 20}); }
  EXPECT_LT(meter.now(), kBytes + 4096);
  EXPECT_GE(meter.peak(), 2 * kBytes);
  std::thread([] { at::empty({1 << 22}); }).join();
  EXPECT_LT(meter.peak(), 3 * kBytes) << "another thread's";
  kept.reset();
  EXPECT_LT(meter.now(), 4096);
  MemoryMeter inner;
  inner.reset_peak();
  EXPECT_EQ(inner.peak(), inner.now());
}

}  // namespace
}  // namespace paceline::tensor
