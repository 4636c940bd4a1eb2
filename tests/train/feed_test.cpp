// Batches on their way to a GPU. Built with CUDA only.
#include <gtest/gtest.h>

#if PACELINE_WITH_CUDA

#include <ATen/ATen.h>
#include <cuda_runtime.h>

#include <chrono>
#include <future>

#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/recorded.h"
#include "paceline/train/feed.h"

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
