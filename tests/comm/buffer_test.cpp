// What can be given to a collective. The tensors here only look like at::Tensor; tests/data_parallel/tensor_buffer_test.cpp has real ones.
#include "paceline/comm/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "ranks.h"
#include "tests/message_of.h"

namespace paceline {

int asked_device = -1;
/// In place of LibTorch's.
void* current_gpu_stream(int device) {
  asked_device = device;
  return &asked_device;
}

namespace comm {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

struct Device {
  int number = -1;
  int index() const { return number; }
};

struct Tensor {
  std::vector<float>* values;
  int type = 6;
  bool dense = true, cpu = true, cuda = false;

  void* data_ptr() const { return values->data(); }
  std::int64_t numel() const { return static_cast<std::int64_t>(values->size()); }
  int scalar_type() const { return type; }
  bool is_contiguous() const { return dense; }
  bool is_cpu() const { return cpu; }
  bool is_cuda() const { return cuda; }
  Device device() const { return {cuda ? 3 : -1}; }
};

TEST(Buffer, IsASpan) {
  std::vector<double> values(10);
  const Buffer all = std::span(values), tail = std::span(values).subspan(7), fixed = std::span<double, 10>(values);
  EXPECT_EQ(all.data, values.data());
  EXPECT_EQ(all.count, 10);
  EXPECT_EQ(all.dtype, DType::f64);
  EXPECT_EQ(tail.data, values.data() + 7);
  EXPECT_EQ(tail.count, 3);
  EXPECT_EQ(fixed.count, 10);
  std::array<std::uint8_t, 3> bytes{};
  EXPECT_EQ(Buffer(std::span(bytes)).dtype, DType::u8);
}

TEST(Buffer, ASpanIsReducedInPlace) {
  const auto problems = play(3, {}, [](Communicator& comm) {
    std::vector<float> values(10, 1);
    comm.run(allreduce(std::span(values).first(4)));
    EXPECT_EQ(values, (std::vector<float>{3, 3, 3, 3, 1, 1, 1, 1, 1, 1}));
  });
  EXPECT_THAT(problems, Each(""));
}

TEST(Buffer, IsATensor) {
  std::vector<float> values(6);
  const Buffer buffer = Tensor{&values};
  EXPECT_EQ(buffer.data, values.data());
  EXPECT_EQ(buffer.count, 6);
  EXPECT_EQ(buffer.dtype, DType::f32);
  EXPECT_FALSE(buffer.on_gpu);
}

TEST(Buffer, ATensorOfAGpuComesWithTheStreamOfItsDevice) {
  std::vector<float> values(6);
  const Buffer buffer = Tensor{.values = &values, .cpu = false, .cuda = true};
  EXPECT_TRUE(buffer.on_gpu);
  EXPECT_EQ(asked_device, 3);
  EXPECT_EQ(buffer.stream, &asked_device);
}

TEST(Buffer, RefusesTensorsThatNoCollectiveCarries) {
  std::vector<float> values(6);
  const auto refusal = [](const Tensor& tensor) { return message_of<ConfigError>([&] { static_cast<void>(Buffer(tensor)); }); };
  EXPECT_THAT(refusal({.values = &values, .type = 11}), AllOf(HasSubstr("type 11"), HasSubstr("tensor.to(")));
  EXPECT_THAT(refusal({.values = &values, .dense = false}), HasSubstr("tensor.contiguous()"));
  EXPECT_THAT(refusal({.values = &values, .cpu = false}), HasSubstr("tensor.cpu()"));
}

TEST(Buffer, ATensorOfAGpuIsRefusedByAnEngineOfTheCpu) {
  CommConfig config;
  config.per_host = 1;
  play(2, config, [](Communicator& comm) {
    std::vector<float> values(6);
    const Tensor tensor{.values = &values, .cpu = false, .cuda = true};
    EXPECT_THAT(message_of<ConfigError>([&] { comm.run(allreduce(tensor)); }), AllOf(HasSubstr("comm.engine=nccl"), HasSubstr("cpu()")));
  });
}

}  // namespace
}  // namespace comm
}  // namespace paceline
