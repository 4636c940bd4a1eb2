// The tests run with LibTorch's switches as training sets them (without oneDNN where it does not pay) and in one thread: layers are tiny.
#include <gtest/gtest.h>

#include "paceline/tensor/device.h"

namespace {

class Environment : public testing::Environment {
  void SetUp() override {
    paceline::tensor::configure_libtorch(c10::Device(c10::kCPU), paceline::tensor::Precision::fp32, /*threads=*/1, /*repeatable=*/true);
  }
};

const testing::Environment* const kEnvironment = testing::AddGlobalTestEnvironment(new Environment);  // GoogleTest deletes it

}  // namespace
