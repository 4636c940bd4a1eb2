// Pages of a GPU behind addresses that stay. Needs a CUDA device.
#include "paceline/tensor/device_pages.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "paceline/tensor/arena.h"
#include "paceline/tensor/backing.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/recorded.h"

namespace paceline::tensor {
namespace {

class DeviceBacking : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_available()) GTEST_SKIP() << "needs a CUDA device";
    const auto options = at::TensorOptions().dtype(at::kFloat).device(at::kCUDA, 0);
    flat_ = allocate_pages(kPages << 19, options);  // 2 MiB each
    if (!DevicePages::of(flat_)) GTEST_SKIP() << "this driver has no virtual memory management";
    page_ = static_cast<std::int64_t>(DevicePages::of(flat_)->page_bytes()) / 4;
    EXPECT_EQ(flat_.count_nonzero().item<std::int64_t>(), 0);
    flat_.fill_(7);
    backing_ = std::make_unique<Backing>(flat_, Role::gradient, ledger_);
  }
  float at(std::int64_t element) const { return flat_[element].item<float>(); }
  std::int64_t pages() const { return ledger_->bytes() / (4 * page_); }

  static constexpr std::int64_t kPages = 16;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  at::Tensor flat_;
  std::unique_ptr<Backing> backing_;
  std::int64_t page_ = 0;
};

TEST_F(DeviceBacking, GivesPagesBackAndLeavesTheOthers) {
  const std::int64_t before = pages();
  backing_->release(page_ / 2, 4 * page_ + 1);  // of the first and the last page a part is needed
  EXPECT_EQ(pages(), before - 3);
  EXPECT_EQ(at(page_ - 1), 7);
  EXPECT_EQ(at(4 * page_), 7);
  backing_->commit(2 * page_, 2 * page_ + 1);
  EXPECT_EQ(pages(), before - 2);
  flat_.narrow(0, 2 * page_, page_).fill_(3);
  EXPECT_EQ(flat_.narrow(0, 2 * page_, page_).sum().item<float>(), 3.0f * static_cast<float>(page_));
  EXPECT_EQ(flat_.narrow(0, 4 * page_, 12 * page_).min().item<float>(), 7);
}

TEST_F(DeviceBacking, UsesPagesAgain) {
  backing_->release(0, kPages * page_);
  for (std::int64_t round = 0; round < 20; ++round) {
    const std::int64_t at_page = round % 8 * 2;
    backing_->commit(at_page * page_, (at_page + 2) * page_);
    const at::Tensor now = flat_.narrow(0, at_page * page_, 2 * page_);
    now.fill_(static_cast<float>(round));
    EXPECT_EQ(now.max().item<float>(), static_cast<float>(round));
    backing_->release(at_page * page_, (at_page + 2) * page_);
    EXPECT_LE(pages(), 5) << "two in use, as many again, and the one that stands for all that are gone";
  }
  backing_->commit(0, kPages * page_);
  for (std::int64_t i = 0; i < kPages; ++i) flat_.narrow(0, i * page_, page_).fill_(static_cast<float>(i));
  for (std::int64_t i = 0; i < kPages; ++i) EXPECT_EQ(flat_.narrow(0, i * page_, page_).min().item<float>(), static_cast<float>(i));
  flat_.fill_(1);
  EXPECT_EQ(flat_.sum().item<double>(), static_cast<double>(kPages * page_));
}

// As a backward pass of ZeRO 2 goes: one range is there throughout, the others come and go, from the last to the first.
TEST_F(DeviceBacking, APassThatRepeatsChangesNoAddress) {
  backing_->release(0, kPages * page_);
  std::int64_t after_first = 0;
  for (int pass = 0; pass < 5; ++pass) {
    backing_->commit(0, 3 * page_);
    flat_.narrow(0, 0, 3 * page_).fill_(static_cast<float>(pass));
    for (std::int64_t unit = 6; unit > 0; --unit) {
      backing_->commit((1 + 2 * unit) * page_, (3 + 2 * unit) * page_);
      const at::Tensor now = flat_.narrow(0, (1 + 2 * unit) * page_, 2 * page_);
      now.fill_(static_cast<float>(100 * pass + unit));
      EXPECT_EQ(now.min().item<float>(), static_cast<float>(100 * pass + unit));
      backing_->release((1 + 2 * unit) * page_, (3 + 2 * unit) * page_);
    }
    EXPECT_EQ(flat_.narrow(0, 0, 3 * page_).sum().item<double>(), static_cast<double>(pass * 3 * page_));
    backing_->release(0, 3 * page_);
    EXPECT_LE(pages(), 7) << "three and two, and what stands for all that never came";
    if (pass == 0) after_first = DevicePages::of(flat_)->mappings();
  }
  EXPECT_EQ(DevicePages::of(flat_)->mappings(), after_first);
}

// The page went on to another range, and must stay with it.
TEST_F(DeviceBacking, ARangeThatComesBackTakesNobodysPage) {
  backing_->release(0, kPages * page_);
  backing_->commit(0, page_);
  backing_->release(0, page_);
  backing_->commit(5 * page_, 6 * page_);
  flat_.narrow(0, 5 * page_, page_).fill_(5);
  backing_->commit(0, page_);
  flat_.narrow(0, 0, page_).fill_(1);
  EXPECT_EQ(flat_.narrow(0, 5 * page_, page_).min().item<float>(), 5);
}

TEST_F(DeviceBacking, FreeingThemLeavesTheRecordingOfAnotherThreadValid) {
  const c10::Device device = flat_.device();
  const OwnStream stream(device);
  Recorded recorded(device, true);
  const at::Tensor sum = at::zeros({1}, flat_.options());
  std::thread other;
  int runs = 0;
  for (Recorded::Run run = Recorded::Run::called; run != Recorded::Run::replayed; ++runs) {
    run = recorded.run([&] {
      sum.add_(1);
      if (!is_recording(device)) return;
      other = std::thread([&] { backing_.reset(), flat_.reset(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // in which it would wait for the device
    });
  }
  other.join();
  EXPECT_EQ(sum.item<float>(), static_cast<float>(runs));
}

}  // namespace
}  // namespace paceline::tensor
