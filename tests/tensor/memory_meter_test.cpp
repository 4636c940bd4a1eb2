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
  inner.reset_peaks();
  EXPECT_EQ(inner.peak(), inner.now());
}

TEST(MemoryMeter, CountsWhatTravelsApart) {
  MemoryMeter meter;
  const at::Tensor staying = at::empty({1 << 20});
  TravellingBytes kept;
  {
    const at::Tensor sent = at::empty({1 << 20});
    TravellingBytes counted(1 << 22);
    EXPECT_LT(meter.staying(), (1 << 22) + 4096);
    EXPECT_GE(meter.now(), 2 << 22);
    counted.add(8);
    EXPECT_EQ(meter.travelling_peak(), (1 << 22) + 8);
    kept = std::move(counted);
  }
  meter.reset_peaks();
  EXPECT_EQ(meter.travelling_peak(), (1 << 22) + 8) << "it was moved, and still counts";
  kept = TravellingBytes();
  meter.reset_peaks();
  EXPECT_EQ(meter.travelling_peak(), 0);
  EXPECT_LT(meter.staying_peak(), (1 << 22) + 4096);
  std::thread([] { TravellingBytes(7).add(1); }).join();
  EXPECT_EQ(meter.travelling_peak(), 0) << "another thread's";
}

}  // namespace
}  // namespace paceline::tensor
