// What a worker of a parameter server makes of its batch norms: with other buffers beside them, and after a batch that overflowed.
#include "paceline/central/norm_reports.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <cmath>
#include <limits>
#include <memory>

#include "paceline/nn/module_model.h"

namespace paceline::central {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct MaskedImpl : torch::nn::Module {
  MaskedImpl() {
    norm = register_module("norm", torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(2).momentum(0.25)));
    mask = register_buffer("mask", torch::full({2, 2}, -kInfinity));
    scale = register_buffer("scale", torch::tensor(2.0f));
  }
  torch::Tensor forward(const torch::Tensor& x) { return norm(x) * scale; }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor mask, scale;
};
TORCH_MODULE(Masked);

struct Worker {
  Masked module;
  std::shared_ptr<nn::Model> model = nn::model_of(module);
  NormReports norms{*model};
  at::Tensor batch = norms.initial(), running = norms.initial();

  /// Of a batch of two samples.
  void pass(float first, float second) {
    norms.before_pass();
    model->run(torch::tensor({{first, 1.0f}, {second, 3.0f}}), nn::Pass{}, nullptr);
    norms.after_pass(batch, running, 1);
  }
  float mean_in(const at::Tensor& statistics) const {
    for (std::size_t entry = 0; entry < model->statistics().entries().size(); ++entry)
      if (model->statistics().entries()[entry].name == "norm.running_mean")
        return model->statistics().view(statistics, entry)[0].item<float>();
    return NAN;
  }
};

TEST(NormReports, SplitABatchFromItsWorkersMean) {
  Worker worker;
  worker.pass(2, 6);
  EXPECT_FLOAT_EQ(worker.mean_in(worker.batch), 4);
  EXPECT_FLOAT_EQ(worker.mean_in(worker.running), 1) << "a quarter of it";
  worker.pass(6, 10);
  EXPECT_FLOAT_EQ(worker.mean_in(worker.batch), 8);
  EXPECT_FLOAT_EQ(worker.mean_in(worker.running), 0.75f * 1 + 0.25f * 8);
}

TEST(NormReports, LeaveOutABatchThatIsNotFinite) {
  for (const float bad : {NAN, kInfinity, 1e30f}) {  // the variance of the last one overflows, the norm's output does not
    Worker worker;
    worker.pass(2, 6);
    worker.pass(bad, 0);
    EXPECT_FLOAT_EQ(worker.mean_in(worker.batch), 4) << bad;
    EXPECT_FLOAT_EQ(worker.mean_in(worker.running), 1) << bad;
    worker.pass(6, 10);
    EXPECT_FLOAT_EQ(worker.mean_in(worker.batch), 8) << bad;
    EXPECT_FLOAT_EQ(worker.mean_in(worker.running), 0.75f * 1 + 0.25f * 8) << bad;
  }
}

TEST(NormReports, LeaveOtherBuffersAsTheyAre) {
  Worker worker;
  for (const float first : {2.0f, NAN, 6.0f}) worker.pass(first, 6);
  for (const at::Tensor& statistics : {worker.batch, worker.running}) {
    worker.norms.show(statistics);
    EXPECT_TRUE(at::equal(worker.module->mask, torch::full({2, 2}, -kInfinity)));
    EXPECT_EQ(worker.module->scale.item<float>(), 2);
  }
}

}  // namespace
}  // namespace paceline::central
