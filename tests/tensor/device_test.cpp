// Names of devices and precisions, and LibTorch's switches.
#include "paceline/tensor/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>

#include "paceline/base/affinity.h"
#include "paceline/base/error.h"

namespace paceline::tensor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const c10::Device kCpu(c10::kCPU);

template <class Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Device, ReadsItsNames) {
  EXPECT_EQ(parse_device("cpu"), kCpu);
  EXPECT_EQ(parse_device("auto").is_cuda(), cuda_available());
  if (!cuda_available()) return;
  EXPECT_EQ(parse_device("cuda"), c10::Device(c10::kCUDA, 0));
  EXPECT_EQ(parse_device("cuda:0"), c10::Device(c10::kCUDA, 0));
}

TEST(Device, RefusesUnknownNames) {
  for (const char* text : {"", "gpu", "CPU", "cpu:0", "cpu ", "tpu", "cuda0"})
    EXPECT_THAT(refusal([&] { parse_device(text); }),
                AllOf(HasSubstr("unknown device '" + std::string(text) + "'"), HasSubstr("auto, cpu, cuda")));
}

TEST(Device, RefusesACudaDeviceThatIsNotThere) {
  if (cuda_available()) {
    for (const char* text : {"cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999999999999"})
      EXPECT_THAT(refusal([&] { parse_device(text); }), HasSubstr("unknown device")) << text;
    EXPECT_THAT(refusal([] { parse_device("cuda:999"); }), HasSubstr("from 0"));
  } else {
    for (const char* text : {"cuda", "cuda:0", "cuda:999"})
      EXPECT_THAT(refusal([&] { parse_device(text); }), AllOf(HasSubstr(text), HasSubstr("use cpu"), Not(HasSubstr("train."))));
  }
}

TEST(Device, HasAName) {
  EXPECT_EQ(device_name(kCpu), "cpu");
  synchronize(kCpu);  // nothing to wait for, and no error
}

TEST(Precision, ReadsItsNames) {
  EXPECT_EQ(parse_precision("fp32", kCpu), Precision::fp32);
  EXPECT_EQ(parse_precision("bf16", kCpu), Precision::bf16);
  EXPECT_EQ(parse_precision("tf32", c10::Device(c10::kCUDA, 0)), Precision::tf32);
}

TEST(Precision, RefusesWhatItDoesNotKnowOrTheDeviceCannotDo) {
  for (const char* text : {"", "fp16", "FP32", "float", "bf16 "})
    EXPECT_THAT(refusal([&] { parse_precision(text, kCpu); }),
                AllOf(HasSubstr("unknown precision '" + std::string(text) + "'"), HasSubstr("fp32, tf32, bf16")));
  EXPECT_THAT(refusal([] { parse_precision("tf32", kCpu); }), AllOf(HasSubstr("CUDA"), HasSubstr("use fp32")));
}

TEST(ConfigureLibtorch, SetsTheThreads) {
  const int before = at::get_num_threads();
  configure_libtorch(kCpu, Precision::fp32, 1, true);
  EXPECT_EQ(at::get_num_threads(), 1);
  configure_libtorch(kCpu, Precision::fp32, 0, true);
  EXPECT_EQ(at::get_num_threads(), std::min(usual_threads(usable_cores()), omp_get_thread_limit()));
  EXPECT_EQ(at::globalContext().userEnabledMkldnn(), onednn_pays());
  at::set_num_threads(before);
}

}  // namespace
}  // namespace paceline::tensor
