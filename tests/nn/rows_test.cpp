// Passes over rows against autograd in double precision, on the CPU and, where there is one, by the kernels of a GPU.
#include "paceline/nn/rows.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/loss.h"
#include "paceline/tensor/device.h"

namespace paceline::nn {
namespace {

struct RowsCase {
  std::string name;
  c10::DeviceType device;
  at::ScalarType type;
  std::int64_t rows, features;
};

class Rows : public testing::TestWithParam<RowsCase> {
 protected:
  void SetUp() override {
    if (GetParam().device == c10::kCUDA && !tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
    torch::manual_seed(3);
  }

  /// Random values as the row's type holds them, in double.
  at::Tensor values(std::vector<std::int64_t> shape) const { return at::randn(shape).to(GetParam().type).to(at::kDouble); }
  at::Tensor matrix() const { return values({GetParam().rows, GetParam().features}); }
  at::Tensor placed(const at::Tensor& tensor) const { return tensor.detach().to(GetParam().device, GetParam().type); }
  at::Tensor place() const {  // of a weight's gradient, as the arena has it
    const auto type = GetParam().type == at::kDouble ? at::kDouble : at::kFloat;
    return at::full({GetParam().features}, 2.0, at::TensorOptions().device(GetParam().device).dtype(type));
  }
  void expect_near(const at::Tensor& actual, const at::Tensor& expected, const char* what) const {
    const at::Tensor a = actual.detach().to(at::kCPU, at::kDouble).flatten(), b = expected.detach().flatten();
    const double tolerance = GetParam().type == at::kDouble ? 1e-12 : GetParam().type == at::kFloat ? 1e-5 : 1e-2;
    EXPECT_LT(((a - b).norm() / b.norm()).item<double>(), tolerance) << what;
  }
};

TEST_P(Rows, SumOverThem) {
  const at::Tensor x = matrix(), sums = place();
  Pass pass;
  deliver_column_sums(sums, placed(x), pass);
  expect_near(sums, x.sum(0), "stored");
  pass.accumulate = true;
  deliver_column_sums(sums, placed(x), pass);
  expect_near(sums, 2 * x.sum(0), "added");
}

TEST_P(Rows, AddUpInTheTableOfTheirTokens) {
  constexpr std::int64_t kTokens = 7;
  const at::Tensor gradient = matrix();
  at::Tensor tokens = at::randint(kTokens - 1, {GetParam().rows}, at::kLong);  // nobody has the last one
  tokens.narrow(0, 0, GetParam().rows / 2).fill_(2);                           // a frequent one
  const at::Tensor expected = at::zeros({kTokens, GetParam().features}, at::kDouble).index_add_(0, tokens, gradient);
  const at::Tensor table = at::full({kTokens, GetParam().features}, 2.0, place().options()), there = tokens.to(GetParam().device);
  Pass pass;
  deliver_table_sums(table, placed(gradient), there, /*add=*/false, pass);
  expect_near(table, expected, "stored");
  deliver_table_sums(table, placed(gradient), there, /*add=*/true, pass);
  expect_near(table, 2 * expected, "added to another part");
  pass.accumulate = true;
  deliver_table_sums(table, placed(gradient), there, /*add=*/false, pass);
  expect_near(table, 3 * expected, "added to another pass");
}

TEST_P(Rows, OfNoTokenGoToNoRow) {
  const at::Tensor gradient = matrix(), tokens = at::randint(3, {GetParam().rows}, at::kLong);
  tokens.narrow(0, 0, GetParam().rows / 2).fill_(kNoRow);
  const at::Tensor expected = at::zeros({3, GetParam().features}, at::kDouble);
  expected.index_add_(0, tokens.clamp(0), gradient * tokens.ge(0).unsqueeze(-1));
  const at::Tensor table = at::full({3, GetParam().features}, 2.0, place().options());
  deliver_table_sums(table, placed(gradient), tokens.to(GetParam().device), /*add=*/false, {});
  expect_near(table, expected, "rows of the others");
}

TEST_P(Rows, GeluGoesBackWithTheSumsOfItsGradient) {
  const at::Tensor x = 2 * matrix(), gradient = matrix(), leaf = x.clone().requires_grad_();
  (at::gelu(leaf, "tanh") * gradient).sum().backward();
  const at::Tensor sums = place();
  expect_near(gelu_gradient_with_sums(placed(gradient), placed(x), sums, {}), leaf.grad(), "gradient");
  expect_near(sums, leaf.grad().sum(0), "sums");
}

TEST_P(Rows, AreNormedWithTheSumBeforeThem) {
  const at::Tensor scale = values({GetParam().features}), shift = values({GetParam().features}), gradient = matrix(), onto = matrix();
  for (const bool summed : {false, true})
    for (const bool shifted : {false, true}) {
      const at::Tensor x = matrix(), residual = summed ? matrix() : at::Tensor();
      const at::Tensor sum = (summed ? x + residual : x).to(GetParam().type).to(at::kDouble).requires_grad_();
      const at::Tensor by_scale = scale.clone().requires_grad_(), by_shift = shift.clone().requires_grad_();
      const at::Tensor y = at::layer_norm(sum, {GetParam().features}, by_scale, shifted ? by_shift : at::Tensor(), 1e-5);
      (y * gradient).sum().backward();

      NormWeights weights{placed(scale), shifted ? placed(shift) : at::Tensor(), {place(), place()}};
      const NormedRows made = normed_rows(placed(x), summed ? placed(residual) : at::Tensor(), weights, 1e-5);
      expect_near(made.y, y, "norm");
      expect_near(made.sum, sum, "sum");
      Pass pass;
      expect_near(normed_rows_back(placed(gradient), made, weights, {}, pass), sum.grad(), "gradient");
      expect_near(weights.gradients[0], by_scale.grad(), "scale");
      pass.accumulate = true;
      expect_near(normed_rows_back(placed(gradient), made, weights, placed(onto), pass), sum.grad() + onto, "gradient onto another");
      expect_near(weights.gradients[0], 2 * by_scale.grad(), "scale, added");
      expect_near(weights.gradients[1], shifted ? 2 * by_shift.grad() : at::full({GetParam().features}, 2.0, at::kDouble), "shift");
    }
}

std::vector<RowsCase> rows_cases() {
  std::vector<RowsCase> all = {{"double", c10::kCPU, at::kDouble, 5, 12}, {"fp32", c10::kCPU, at::kFloat, 33, 24}};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const auto& [rows, features] :
         {std::pair(1, 8), std::pair(1000, 768), std::pair(77, 4096), std::pair(5000, 264), std::pair(40, 12)})
      all.push_back({(type == at::kFloat ? "cuda_fp32_" : "cuda_bf16_") + std::to_string(rows) + "x" + std::to_string(features), c10::kCUDA,
                     type, rows, features});
  return all;
}

INSTANTIATE_TEST_SUITE_P(, Rows, testing::ValuesIn(rows_cases()), [](const auto& row) { return row.param.name; });

struct TransformerPass {
  at::Tensor loss, gradients;
};

TransformerPass transformer_pass(const c10::Device& device, tensor::Precision precision) {
  graph::ModelConfig config;
  config.network = "gpt", config.input = {96}, config.classes = 104, config.layers = 2, config.width = 64, config.heads = 4;
  config.tied = true;
  GraphModule module(graph::make_graph(config), {.device = device, .precision = precision, .seed = 3});
  torch::manual_seed(8);
  const at::Tensor tokens = at::randint(104, {4, 97}, at::kLong);
  Pass pass;
  Trace trace;
  const at::Tensor logits = module.run(tokens.narrow(1, 0, 96).contiguous().to(device), pass, &trace);
  const Scored scored = softmax_loss(logits, tokens.narrow(1, 1, 96).contiguous().to(device), 0, 1.0 / (4 * 96), true);
  module.back(scored.gradient, pass, trace);
  return {scored.sums.cpu() / (4 * 96), module.arena().gradients().cpu()};
}

TEST(RowsOfATransformer, OnAGpuGiveTheGradientsOfTheCpu) {
  if (!tensor::cuda_available()) GTEST_SKIP() << "needs a CUDA device";
  const c10::Device gpu(c10::kCUDA, 0);
  tensor::configure_libtorch(gpu, tensor::Precision::fp32, 1, /*repeatable=*/true);
  const TransformerPass cpu = transformer_pass(c10::kCPU, tensor::Precision::fp32);
  for (const auto& [precision, tolerance] : {std::pair(tensor::Precision::fp32, 1e-4), std::pair(tensor::Precision::bf16, 3e-2)}) {
    const TransformerPass made = transformer_pass(gpu, precision);
    EXPECT_NEAR(made.loss[0].item<double>(), cpu.loss[0].item<double>(), tolerance);
    EXPECT_LT(((made.gradients - cpu.gradients).norm() / cpu.gradients.norm()).item<double>(), tolerance);
  }
}

}  // namespace
}  // namespace paceline::nn
