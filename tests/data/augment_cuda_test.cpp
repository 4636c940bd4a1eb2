// The GPU's augmentation against the CPU's: equal bits in f32, rounded to nearest in bf16 and f16.
#ifdef PACELINE_WITH_CUDA

#include "paceline/data/augment_cuda.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "paceline/data/augment.h"
#include "tests/data/fixtures.h"

namespace paceline::data {
namespace {

/// A copy of host memory on the device.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::span<const T> host) : count_(host.size()) {
    if (cudaMalloc(&memory_, host.size_bytes()) != cudaSuccess) throw std::bad_alloc();
    cudaMemcpy(memory_, host.data(), host.size_bytes(), cudaMemcpyHostToDevice);
  }
  ~OnDevice() { cudaFree(memory_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() const { return static_cast<T*>(memory_); }
  std::vector<T> back() const {
    std::vector<T> host(count_);
    EXPECT_EQ(cudaMemcpy(host.data(), memory_, count_ * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return host;
  }

 private:
  void* memory_ = nullptr;
  std::size_t count_;
};

class AugmentCuda : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Layouts, AugmentCuda, testing::Bool());

TEST_P(AugmentCuda, HasTheBitsOfTheCpu) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
  const bool channels_last = GetParam();
  DataConfig config = config_of("random");
  config.shape = {3, 31, 29};
  config.train_samples = 50;
  config.cutout = 7;
  const auto set = make_dataset(config, Split::train, 1);
  const auto pixels = set->pixels().value();
  const Normalisation normalisation(set->info());
  constexpr std::size_t kCount = 40, kPlane = 31 * 29, kImage = 3 * kPlane;

  std::vector<AugmentPlan> plans;
  std::vector<float> expected(kCount * kImage);
  for (std::size_t i = 0; i < kCount; ++i) {
    RandomStream random(1, Purpose::augment, i);
    plans.push_back(set->plan(static_cast<std::int64_t>(i * 7 % 50), &random));
    std::vector<float> image(kImage);
    apply_plan(plans[i], pixels.bytes.data() + plans[i].sample * kImage, 31, 29, normalisation, image.data());
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t p = 0; p < kPlane; ++p) expected[i * kImage + (channels_last ? p * 3 + c : c * kPlane + p)] = image[c * kPlane + p];
  }

  const OnDevice<std::uint8_t> bytes(pixels.bytes);
  const OnDevice<std::int64_t> labels(pixels.labels), targets(pixels.labels.first(kCount));
  const OnDevice<AugmentPlan> device_plans{std::span<const AugmentPlan>(plans)};
  const auto run = [&]<class T>(OutType type, T) {
    const OnDevice<T> out{std::span<const T>(std::vector<T>(expected.size()))};
    launch_augment(bytes.data(), labels.data(), device_plans.data(), kCount, 3, 31, 29, normalisation.centre.data(),
                   normalisation.scale.data(), out.data(), type, channels_last, targets.data(), nullptr);
    return out.back();
  };
  EXPECT_EQ(run(OutType::f32, float{}), expected);
  const auto bf16 = run(OutType::bf16, __nv_bfloat16{});
  const auto f16 = run(OutType::f16, __half{});
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(__bfloat162float(bf16[i]), __bfloat162float(__float2bfloat16_rn(expected[i])));
    ASSERT_EQ(__half2float(f16[i]), __half2float(__float2half_rn(expected[i])));
  }
  const auto got = targets.back();
  for (std::size_t i = 0; i < kCount; ++i) EXPECT_EQ(got[i], pixels.labels[static_cast<std::size_t>(plans[i].sample)]);
}

}  // namespace
}  // namespace paceline::data

#endif
