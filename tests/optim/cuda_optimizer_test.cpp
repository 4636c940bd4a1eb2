// The GPU's optimizers against the CPU's. They run where there is a GPU and Paceline was built for it.
#if PACELINE_WITH_CUDA

#include "paceline/optim/range_optimizer.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <bit>

#include "tests/optim/reference.h"

namespace paceline::optim {
namespace {

void check(cudaError_t status) {
  if (status != cudaSuccess) throw Error(cudaGetErrorString(status));
}

/// A copy of host values on the device.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : size_(values.size()) {
    check(cudaMalloc(&data_, size_ * sizeof(T)));
    check(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() { return data_; }
  void write(const std::vector<T>& values) { check(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice)); }
  std::vector<T> read() const {
    std::vector<T> values(size_);
    check(cudaDeviceSynchronize());
    check(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t size_;
  T* data_ = nullptr;
};

struct DeviceArena {
  explicit DeviceArena(const Arena& arena) : parameters(arena.parameters), gradients(arena.gradients) {
    for (const auto& values : arena.state) state.push_back(std::make_unique<OnDevice<float>>(values));
  }

  Buffers buffers(void* stream = nullptr) {
    Buffers all{.parameters = parameters.data(), .gradients = gradients.data(), .stream = stream};
    for (auto& values : state) all.state.push_back(values->data());
    return all;
  }

  OnDevice<float> parameters, gradients;
  std::vector<std::unique_ptr<OnDevice<float>>> state;
};

class CudaOptimizerTest : public testing::TestWithParam<OptimConfig> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "this machine has no GPU";
  }

  /// Same bits where every element stands for itself; sums over a tensor have another order than on the CPU.
  void expect_equal(const std::vector<float>& expected, const std::vector<float>& actual) {
    const bool exact = GetParam().name != "lars" && GetParam().name != "lamb";
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (exact) ASSERT_EQ(std::bit_cast<std::uint32_t>(expected[i]), std::bit_cast<std::uint32_t>(actual[i])) << "element " << i;
      else ASSERT_NEAR(expected[i], actual[i], 1e-6) << "element " << i;
    }
  }

  void expect_equal(const Arena& expected, const DeviceArena& actual) {
    expect_equal(expected.parameters, actual.parameters.read());
    expect_equal(expected.gradients, actual.gradients.read());
    for (std::size_t k = 0; k < expected.state.size(); ++k) expect_equal(expected.state[k], actual.state[k]->read());
  }

  const std::vector<Segment> segments = odd_segments();
};

TEST_P(CudaOptimizerTest, EqualsTheCpuOverRangesWithAndWithoutZeroing) {
  const auto cpu = make_optimizer(GetParam());
  const auto cuda = make_cuda_optimizer(GetParam(), segments);
  ASSERT_EQ(cuda->state_names(), cpu->state_names());
  Arena arena(arena_size(segments), cpu->state_names().size());
  DeviceArena device(arena);
  const std::span<const Segment> all = segments;
  for (std::int64_t step = 1; step <= 3; ++step)
    for (const auto& part : {all.first(4), all.subspan(4)}) {
      const Hyper hyper{.rate = 0.05f, .gradient_scale = 0.5f, .step = step};
      cpu->update(arena.buffers(), part, hyper, step == 3);
      cuda->update(device.buffers(), part, hyper, step == 3);
    }
  expect_equal(arena, device);
}

TEST_P(CudaOptimizerTest, ACapturedStepReadsThePresentRateAndNorm) {
  OptimConfig config = GetParam();
  config.clip_norm = 0.5;
  const auto cpu = make_optimizer(config);
  const auto cuda = make_cuda_optimizer(config, segments);
  Arena arena(arena_size(segments), cpu->state_names().size());
  DeviceArena device(arena);
  OnDevice<double> norm({0});
  double host_norm = 0;
  for (const Segment& segment : segments) host_norm += squared_norm(arena.gradients.data() + segment.offset, segment.count);

  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  Buffers buffers = device.buffers(stream);
  buffers.squared_norm = norm.data();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t step_graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cuda->squared_norm(device.gradients.data(), segments, norm.data(), stream);
  cuda->update(buffers, segments, {.rate = 1e9f}, false);  // this rate must not stay in the graph
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiateWithFlags(&step_graph, graph, 0));

  Buffers host = arena.buffers();
  host.squared_norm = &host_norm;
  for (std::int64_t step = 1; step <= 3; ++step) {
    const Hyper hyper{.rate = 0.1f / static_cast<float>(step), .step = step};
    cuda->set_hyper(hyper, stream);
    check(cudaGraphLaunch(step_graph, stream));
    cpu->update(host, segments, hyper, false);
  }
  check(cudaStreamSynchronize(stream));
  EXPECT_NEAR(norm.read()[0] / host_norm, 1, 1e-12);
  const std::vector<float> parameters = device.parameters.read();
  for (std::size_t i = 0; i < parameters.size(); ++i) ASSERT_NEAR(parameters[i], arena.parameters[i], 1e-6) << "element " << i;
  cudaGraphExecDestroy(step_graph);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_P(CudaOptimizerTest, RefusesTensorsThatItDoesNotKnow) {
  const auto cuda = make_cuda_optimizer(GetParam(), segments);
  Arena arena(arena_size(segments), cuda->state_names().size());
  DeviceArena device(arena);
  const Segment stranger{.offset = 5, .count = 2};
  EXPECT_THROW(cuda->update(device.buffers(), {&stranger, 1}, {.rate = 1}, false), InternalError);
}

class CudaNormsTest : public CudaOptimizerTest {};

// Two ranks hold the range in parts that end in the middle of tensors. The second has memory for the state of its part alone.
TEST_P(CudaNormsTest, HalvesOfPiecesMakeTheUpdateOfTheCpu) {
  OptimConfig config = GetParam();
  config.clip_norm = 0.5;
  const auto cpu = make_optimizer(config);
  Arena arena(arena_size(segments), cpu->state_names().size());
  const std::int64_t length = std::ssize(arena.parameters), cut = length / 3, end = length - 40, place = cut % 16;
  const std::vector<std::vector<Stretch>> stretches = {{{0, cut, 0}, {end, length, end}}, {{cut, end, place}}};

  struct Rank {
    Rank(const Arena& arena, RangeOptimizer made) : memory(arena), optimizer(std::move(made)) {}
    DeviceArena memory;
    RangeOptimizer optimizer;
  };
  OnDevice<double> norm({0});
  std::vector<std::unique_ptr<Rank>> ranks;
  for (const auto& held : stretches) {
    Arena mine = arena;
    if (held.size() == 1)
      for (auto& state : mine.state) state.resize(static_cast<std::size_t>(place + end - cut));
    ranks.push_back(std::make_unique<Rank>(mine, RangeOptimizer(config, segments, length, /*cuda=*/true)));
    RangeOptimizer::Memory memory{.parameters = ranks.back()->memory.parameters.data(), .squared_norm = norm.data()};
    for (auto& state : ranks.back()->memory.state) memory.state.push_back(state->data());
    ranks.back()->optimizer.bind(std::move(memory));
    ranks.back()->optimizer.cut(held);
  }

  for (std::int64_t step = 1; step <= 3; ++step) {
    const Hyper hyper{.rate = 0.05f, .gradient_scale = 0.5f, .step = step};
    arena.draw_gradients(static_cast<std::uint64_t>(step));
    double squared = squared_norm(arena.gradients.data(), length);
    norm.write({squared});
    Buffers buffers = arena.buffers();
    buffers.squared_norm = &squared;
    cpu->update(buffers, segments, hyper, false);

    std::vector<Squares> sums(segments.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank]->memory.gradients.write(arena.gradients);
      OnDevice<Squares> squares{std::vector<Squares>(segments.size())};
      for (const Stretch& stretch : stretches[rank])
        ranks[rank]->optimizer.measure(ranks[rank]->memory.gradients.data(), stretch, hyper, nullptr, /*clipped=*/true, squares.data());
      const std::vector<Squares> own = squares.read();
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i].parameters += own[i].parameters, sums[i].others += own[i].others;
    }
    OnDevice<Squares> whole(sums);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      for (const Stretch& stretch : stretches[rank])
        ranks[rank]->optimizer.move(ranks[rank]->memory.gradients.data(), stretch, hyper, nullptr, /*clipped=*/true, whole.data());
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<float> found = ranks[rank]->memory.parameters.read();
    for (const Stretch& stretch : stretches[rank])
      for (std::int64_t i = stretch.begin; i < stretch.end; ++i)
        ASSERT_NEAR(found[static_cast<std::size_t>(i)], arena.parameters[static_cast<std::size_t>(i)], 1e-6) << "element " << i;
  }
}

std::vector<OptimConfig> variants_with_norms() {
  std::vector<OptimConfig> variants = all_variants();
  std::erase_if(variants, [](const OptimConfig& config) { return make_optimizer(config)->elementwise(); });
  return variants;
}

INSTANTIATE_TEST_SUITE_P(Every, CudaNormsTest, testing::ValuesIn(variants_with_norms()),
                         [](const auto& variant) { return variant_name(variant.param); });

INSTANTIATE_TEST_SUITE_P(Every, CudaOptimizerTest, testing::ValuesIn(all_variants()),
                         [](const auto& variant) { return variant_name(variant.param); });

TEST(CudaCast, RoundsToNearestEven) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "this machine has no GPU";
  std::vector<float> values(100'001);
  RandomStream random(11, Purpose::test);
  for (float& value : values) value = random.normal();
  values[0] = std::bit_cast<float>(0x3f808000u);  // a tie, down to an even mantissa
  values[1] = std::bit_cast<float>(0x3f818000u);  // a tie, up to an even mantissa
  OnDevice<float> input(values);
  OnDevice<std::uint16_t> output(std::vector<std::uint16_t>(values.size()));
  cast_bf16(input.data(), output.data(), static_cast<std::int64_t>(values.size()), nullptr);
  const std::vector<std::uint16_t> cast = output.read();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    ASSERT_EQ(cast[i], (bits + 0x7fffu + (bits >> 16 & 1)) >> 16) << "element " << i;
  }
}

}  // namespace
}  // namespace paceline::optim

#endif
