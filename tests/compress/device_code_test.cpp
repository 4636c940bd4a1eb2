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
    const CodingContext context{.seed = 3, .rank = 1, .step = 7, .epoch = 2, .place = 11};
    const std::unique_ptr<Coder> host = coder(GetParam(), config);
    std::vector<float> left = values;
    const std::vector<std::byte> code = encode(*host, layout, left, context);
    const std::unique_ptr<DeviceCode> device = find(compressors(), "compressor", GetParam()).make.on_gpu(config, layout);
    const Copied<float> on_gpu(values);
    const Copied<std::byte> made(std::vector<std::byte>(code.size()));
    ASSERT_EQ(device->encode(on_gpu.data(), context, made.data(), nullptr), std::ssize(code));
    EXPECT_TRUE(made.values() == code);
    EXPECT_TRUE(bits_of(on_gpu.values()) == bits_of(left));
    if (!with_sums) return;
    std::vector<float> sum = gradient(layout, 77, 1);
    const Copied<float> sum_on_gpu(sum);
    host->decode_add(layout, code, 1.0f / 3, sum.data());
    device->decode_add({made.data(), code.size()}, 1.0f / 3, sum_on_gpu.data(), nullptr);
    EXPECT_TRUE(bits_of(sum_on_gpu.values()) == bits_of(sum));
  }
};

TEST_P(OnGpuTest, MakesTheBytesOfTheCpu) {
  for (const RangeLayout& layout : {odd_layout(), long_layout(), one_part(1), one_part(64), RangeLayout{}})
    for (const float deviation : {1e-6f, 1e-2f, 100.0f}) {
      expect_the_same(layout, gradient(layout, 5, deviation), {});
      expect_the_same(layout, gradient(layout, 6, deviation), {.block = 100, .sign_scale = 0.5, .clip_deviations = 0.7});
      for (const double density : {1e-9, 0.3, 1.0})
        expect_the_same(layout, gradient(layout, 7, deviation), {.density = density, .warmup_epochs = 0, .threshold = deviation / 3});
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
    expect_the_same(layout, values, {.density = 0.8});  // more than differ from `odd`
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

/// Halves numbers of the host or of the GPU: their mean with those of a worker that has zeros.
void halve(const Round& round) {
  std::vector<float> numbers(static_cast<std::size_t>(round.count));
  const std::size_t bytes = numbers.size() * sizeof(float);
  EXPECT_EQ(cudaMemcpy(numbers.data(), round.data, bytes, cudaMemcpyDefault), cudaSuccess);
  for (float& number : numbers) number /= 2;
  EXPECT_EQ(cudaMemcpy(round.data, numbers.data(), bytes, cudaMemcpyDefault), cudaSuccess);
}

/// Matrices of several tiles in each direction.
RangeLayout large_matrices() {
  RangeLayout layout{.parts = {}, .length = 5};
  const auto add = [&](std::int64_t rows, std::int64_t columns) {
    layout.parts.push_back({.offset = layout.length, .count = rows * columns, .rows = rows, .columns = columns});
    layout.length += rows * columns + 3;
  };
  add(300, 147), add(1, 9000), add(67, 1201), add(2500, 30);
  return layout;
}

TEST(LowRankOnGpu, HasTheBitsOfTheCpu) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU here";
  const Compressor& powersgd = find(compressors(), "compressor", "powersgd").make;
  for (const RangeLayout& layout : {odd_layout(), large_matrices(), one_part(1), RangeLayout{}})
    for (const std::int64_t rank : {1, 2, 7, 19}) {
      const CompressConfig config{.rank = rank};
      const std::unique_ptr<Linear> host = powersgd.linear(config, layout, 5), device = powersgd.linear_on_gpu(config, layout, 5);
      std::vector<float> left(static_cast<std::size_t>(layout.length));  // zeros at first: all columns of P depend on one another
      for (int step = 0; step < 3; ++step) {
        const Copied<float> left_on_gpu(left), mean_on_gpu(std::vector<float>(left.size(), 77));
        for (int round = 0; round < host->rounds(); ++round) {
          halve(host->round(round, left.data()));
          halve(device->round(round, left_on_gpu.data()));
        }
        std::vector<float> mean(left.size(), 77);
        host->finish(left.data(), mean.data());
        device->finish(left_on_gpu.data(), mean_on_gpu.data());
        ASSERT_TRUE(bits_of(mean_on_gpu.values()) == bits_of(mean)) << "rank " << rank << ", step " << step;
        ASSERT_TRUE(bits_of(left_on_gpu.values()) == bits_of(left)) << "rank " << rank << ", step " << step;
        ASSERT_TRUE(bits_of(device->state()) == bits_of(host->state())) << "rank " << rank << ", step " << step;
        const std::vector<float> more = gradient(layout, static_cast<std::uint64_t>(step) + 1);
        for (std::size_t i = 0; i < left.size(); ++i) left[i] += more[i];
      }
      const std::unique_ptr<Linear> later = powersgd.linear_on_gpu(config, layout, 6);
      later->set_state(host->state());
      EXPECT_TRUE(bits_of(later->state()) == bits_of(host->state()));
    }
}

INSTANTIATE_TEST_SUITE_P(All, OnGpuTest, testing::ValuesIn(keys_on_gpu()), [](const auto& item) { return item.param; });

}  // namespace
}  // namespace paceline::compress

#endif
