// LibTorch's generator belongs to the process: modules that several threads make must have the weights of their seeds all the same.
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/utils.h>

#include <atomic>
#include <thread>

#include "paceline/nn/module_model.h"

namespace paceline::nn {
namespace {

torch::nn::Sequential two_layers() { return torch::nn::Sequential(torch::nn::Linear(40, 30), torch::nn::Linear(30, 20)); }

/// A thread that makes modules, and so draws from the generator of the process, until it is destroyed.
class OtherMaker {
 public:
  OtherMaker()
      : thread_([this](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            models_of(two_layers)({});
            made_ = true;
            made_.notify_one();
          }
        }) {
    made_.wait(false);
  }

 private:
  std::atomic<bool> made_ = false;
  std::jthread thread_;
};

// As where servers and workers are threads of one process.
TEST(Generator, GivesAModuleTheWeightsOfItsSeedWhateverElseIsMade) {
  const auto seeded = [] {
    const auto alone = hold_generator();
    torch::manual_seed(4);
    return models_of(two_layers)({})->arena().parameters().clone();
  };
  const at::Tensor expected = seeded();
  const OtherMaker other;
  for (int time = 0; time < 50; ++time) ASSERT_TRUE(at::equal(seeded(), expected)) << time;
}

}  // namespace
}  // namespace paceline::nn
