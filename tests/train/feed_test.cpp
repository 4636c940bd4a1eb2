// Batches on their way to a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "paceline/train/feed.h"

namespace paceline::train {
namespace {

TEST(InPlace, AShorterBatchLeavesThoseAfterItWhereTheyWere) {
  at::Tensor longest;
  const auto at_once = [&](std::vector<std::int64_t> sizes) {
    return in_place(longest, sizes, at::TensorOptions(at::kFloat), at::MemoryFormat::ChannelsLast);
  };
  const at::Tensor whole = at_once({6, 3, 4, 5}), shorter = at_once({2, 3, 4, 5}), again = at_once({6, 3, 4, 5});
  EXPECT_EQ(shorter.data_ptr(), whole.data_ptr());
  EXPECT_EQ(again.data_ptr(), whole.data_ptr());
  EXPECT_EQ(shorter.sizes(), at::IntArrayRef({2, 3, 4, 5}));
  EXPECT_TRUE(shorter.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(at_once({7, 3, 4, 5}).size(0), 7);
  EXPECT_EQ(at_once({2, 3, 4, 4}).sizes(), at::IntArrayRef({2, 3, 4, 4}));
}

}  // namespace
}  // namespace paceline::train

#if PACELINE_WITH_CUDA

#include <cuda_runtime.h>

#include <chrono>
#include <future>

#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/recorded.h"

namespace paceline::train {
namespace {

/// Keeps a stream busy until it goes, twenty seconds at most.
class BusyStream {
 public:
  explicit BusyStream(void* stream) {
    const auto wait = [](void* held) { static_cast<BusyStream*>(held)->free_.get_future().wait_for(std::chrono::seconds(20)); };
    EXPECT_EQ(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), wait, this), cudaSuccess);
  }
  void let_go() { free_.set_value(); }

 private:
  std::promise<void> free_;
};

std::unique_ptr<nn::GraphModule> model_on(const c10::Device& device) {
  graph::ModelConfig config;
  config.network = "lenet5";
  nn::GraphModule::Options options;
  options.device = device;
  return std::make_unique<nn::GraphModule>(graph::make_graph(config), options);
}

TEST(FeedOnGpu, TheHostDoesNotWaitForTheStepBefore) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "no GPU here";
  const c10::Device device(at::kCUDA, 0);
  data::DataConfig config;
  config.name = "random", config.shape = {1, 28, 28}, config.train_samples = 64, config.residency = "host";
  const auto dataset = data::make_dataset(config, data::Split::train, 1);
  const auto model = model_on(device), other = model_on(at::kCPU);
  data::LoaderOptions options;
  options.batch = 16;
  const auto feed = make_feed(*dataset, options, config, *model), plain = make_feed(*dataset, options, config, *other);
  const tensor::OwnStream own(device);
  feed->start(0, 16), plain->start(0, 16);
  const step::Batch first = *feed->next();
  tensor::synchronize(device);
  const auto stream = static_cast<cudaStream_t>(tensor::current_stream(device));
  BusyStream busy(stream);
  const step::Batch second = *feed->next();
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_EQ(first.inputs.data_ptr(), second.inputs.data_ptr());
  busy.let_go();
  plain->next();
  for (int batch = 1; batch < 4; ++batch) {  // in their order, though their memory on the host comes again
    const step::Batch expected = *plain->next(), found = batch == 1 ? second : *feed->next();
    EXPECT_TRUE(at::equal(found.inputs.cpu(), expected.inputs));
    EXPECT_TRUE(at::equal(found.targets.cpu(), expected.targets));
  }
}

}  // namespace
}  // namespace paceline::train

#endif
