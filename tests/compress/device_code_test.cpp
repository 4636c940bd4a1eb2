// Codes that a GPU makes are those of the CPU, byte by byte, and so is what they leave and what they mean. Built with CUDA only.
#include <gtest/gtest.h>

#if PACELINE_WITH_CUDA

#include <cuda_runtime.h>

#include <bit>
#include <cmath>
#include <limits>

#include "paceline/compress/device_code.h"
#include "tests/compress/support.h"

namespace paceline::compress {
namespace {

/// Values of the host in memory of the GPU.
template <class T>
class Copied {
 public:
  explicit Copied(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, std::max<std::size_t>(bytes(), 1)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~Copied() { cudaFree(data_); }
  Copied(const Copied&) = delete;
  Copied& operator=(const Copied&) = delete;
  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> values() const {
    std::vector<T> host(count_);
    EXPECT_EQ(cudaMemcpy(host.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return host;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::size_t count_;
  void* data_ = nullptr;
};

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

/// Parts of several blocks of statistics and of one, and such as end within one.
RangeLayout long_layout() {
  RangeLayout layout{.parts = {}, .length = 7};
  for (const std::int64_t count : {4096, 3, 20000, 4097, 300001, 8191}) {
    layout.parts.push_back({.offset = layout.length, .count = count, .rows = 1, .columns = count});
    layout.length += count + 13;
  }
  return layout;
}

class OnGpuTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU here";
  }

  /// Encodes on both sides and decodes the CPU's code on both.
  void expect_the_same(const RangeLayout& layout, const std::vector<float>& values, const CompressConfig& config, bool with_sums = true) {
    const Moment moment{.seed = 3, .rank = 1, .step = 7, .epoch = 2, .place = 11};
    const std::unique_ptr<Coder> host = coder(GetParam(), config);
    std::vector<float> left = values;
    const std::vector<std::byte> code = encode(*host, layout, left, moment);
    const std::unique_ptr<DeviceCode> device = find(compressors(), "compressor", GetParam()).make.on_gpu(config, layout);
    const Copied<float> on_gpu(values);
    const Copied<std::byte> made(std::vector<std::byte>(code.size()));
    device->encode(on_gpu.data(), moment, made.data(), nullptr);
    EXPECT_TRUE(made.values() == code);
    EXPECT_TRUE(bits_of(on_gpu.values()) == bits_of(left));
    if (!with_sums) return;
    std::vector<float> sum = gradient(layout, 77, 1);
    const Copied<float> sum_on_gpu(sum);
    host->decode_add(layout, code, 1.0f / 3, sum.data());
    device->decode_add(made.data(), 1.0f / 3, sum_on_gpu.data(), nullptr);
    EXPECT_TRUE(bits_of(sum_on_gpu.values()) == bits_of(sum));
  }
};

TEST_P(OnGpuTest, MakesTheBytesOfTheCpu) {
  for (const RangeLayout& layout : {odd_layout(), long_layout(), one_part(1), one_part(64), RangeLayout{}})
    for (const float deviation : {1e-6f, 1e-2f, 100.0f}) {
      expect_the_same(layout, gradient(layout, 5, deviation), {});
      expect_the_same(layout, gradient(layout, 6, deviation), {.block = 100, .sign_scale = 0.5, .clip_deviations = 0.7});
    }
}

TEST_P(OnGpuTest, KnowsZerosAndWhatIsNotFinite) {
  const RangeLayout layout = long_layout();
  expect_the_same(layout, std::vector<float>(static_cast<std::size_t>(layout.length)), {});
  for (const float odd : {0.0f, -0.0f, 1e-40f, -1e-35f}) {
    std::vector<float> values = gradient(layout, 8);
    for (std::size_t i = 0; i < values.size(); i += 3)
      if (values[i] != 0) values[i] = odd;
    expect_the_same(layout, values, {});
  }
  for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> values = gradient(layout, 9);
    values[static_cast<std::size_t>(layout.parts[2].offset) + 5000] = odd;
    expect_the_same(layout, values, {}, /*with_sums=*/false);  // which NaN a sum is, processors decide
  }
}

std::vector<std::string> keys_on_gpu() {
  std::vector<std::string> keys;
  for (const auto& row : compressors())
    if (row.make.on_gpu) keys.emplace_back(row.key);
  return keys;
}

INSTANTIATE_TEST_SUITE_P(All, OnGpuTest, testing::ValuesIn(keys_on_gpu()), [](const auto& item) { return item.param; });

}  // namespace
}  // namespace paceline::compress

#endif
