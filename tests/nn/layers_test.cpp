// Every kind of layer: output and gradients against LibTorch's own modules under autograd, gradients against central differences in double
// precision, and how gradients are written.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>

#include "cases.h"
#include "paceline/base/error.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/loss.h"
#include "plain_pass.h"

namespace paceline::nn {
namespace {

using graph::Kind;

/// The gradients of the row's objective: a weighted sum of the outputs, or the mean loss.
struct Gradients {
  at::Tensor input;  // undefined for tokens
  Tensors weights;
};

class Layers : public testing::TestWithParam<Case> {
 protected:
  Layers() : module_(graph_of(GetParam()), double_precision()), sample_(sample_of(GetParam())) {
    pass_.training = GetParam().training;
    spread(module_);
    probe_ = at::randn_like(output());
  }

  static GraphModule::Options double_precision() {
    GraphModule::Options options;
    options.dtype = at::kDouble;
    return options;
  }

  /// Weights away from the ones and zeroes that norms and biases begin with; variances stay positive.
  static void spread(GraphModule& module) {
    torch::manual_seed(13);
    for (std::size_t i = 0; i < module.arena().entries().size(); ++i) module.arena().parameter(i).normal_(0.3, 0.8);
    for (std::size_t i = 0; i < module.statistics().entries().size(); ++i) module.statistics().parameter(i).uniform_(0.5, 1.5);
  }

  at::Tensor output(Trace* trace = nullptr) {
    reseed();
    return module_.run(sample_, pass_, trace);
  }

  bool is_loss() const { return GetParam().kind == Kind::softmax_loss; }

  Scored scored(const at::Tensor& logits) const {
    const at::Tensor targets = targets_of(GetParam());
    return softmax_loss(logits, targets, GetParam().smoothing, 1.0 / static_cast<double>(targets.numel()), true);
  }

  double objective() {
    const at::Tensor out = output();
    if (is_loss()) return scored(out).sums[0].item<double>() / static_cast<double>(targets_of(GetParam()).numel());
    return (out * probe_).sum().item<double>();
  }

  Gradients gradients() {
    Trace trace;
    const at::Tensor out = output(&trace);
    Gradients result;
    result.input = module_.back(is_loss() ? scored(out).gradient : probe_, pass_, trace, nullptr, /*wants_input=*/true);
    for (std::size_t i = 0; i < module_.arena().entries().size(); ++i) result.weights.push_back(module_.arena().gradient(i));
    return result;
  }

  /// Of every element of `values`, in place.
  at::Tensor central_differences(const at::Tensor& values) {
    constexpr double kStep = 1e-5;
    at::Tensor result = at::empty_like(values);
    double *value = values.data_ptr<double>(), *slope = result.data_ptr<double>();
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      const double centre = value[i];
      value[i] = centre + kStep;
      const double above = objective();
      value[i] = centre - kStep;
      const double below = objective();
      value[i] = centre;
      slope[i] = (above - below) / (2 * kStep);
    }
    return result;
  }

  GraphModule module_;
  at::Tensor sample_, probe_;
  Pass pass_;
};

TEST_P(Layers, AgreesWithLibTorchsOwnModule) {
  spread(module_);  // afresh: the constructor's pass has moved the statistics
  Weights leaves;
  for (std::size_t i = 0; i < module_.arena().entries().size(); ++i)
    leaves.values.push_back(module_.arena().parameter(i).clone().requires_grad_());
  for (std::size_t i = 0; i < module_.statistics().entries().size(); ++i)
    leaves.statistics.push_back(module_.statistics().parameter(i).clone());
  const at::Tensor x = sample_.is_floating_point() ? sample_.clone().requires_grad_() : sample_;
  reseed();
  const at::Tensor expected = reference(GetParam(), x, leaves);
  (is_loss() ? expected : (expected * probe_).sum()).backward();

  const auto expect_close = [](const at::Tensor& actual, const at::Tensor& wanted, const std::string& what) {
    EXPECT_EQ(actual.sizes(), wanted.sizes()) << what;
    EXPECT_TRUE(at::allclose(actual, wanted, 1e-10, 1e-12)) << what << "\n" << actual << "\nexpected\n" << wanted;
  };
  if (is_loss()) EXPECT_NEAR(objective(), expected.item<double>(), 1e-12);
  else expect_close(output(), expected, "output");
  for (std::size_t i = 0; i < leaves.statistics.size(); ++i)
    expect_close(module_.statistics().parameter(i), leaves.statistics[i], module_.statistics().entries()[i].name);
  const Gradients actual = gradients();
  if (x.requires_grad()) expect_close(actual.input, x.grad(), "input");
  for (std::size_t i = 0; i < leaves.values.size(); ++i)
    expect_close(actual.weights[i], leaves.values[i].grad(), module_.arena().entries()[i].name);
}

TEST_P(Layers, AgreesWithCentralDifferences) {
  const Gradients actual = gradients();
  const auto expect_close = [](const at::Tensor& gradient, const at::Tensor& differences, const std::string& what) {
    EXPECT_TRUE(at::allclose(gradient, differences, 1e-6, 1e-7)) << what << "\n" << gradient << "\ndifferences\n" << differences;
  };
  if (sample_.is_floating_point()) expect_close(actual.input, central_differences(sample_), "input");
  for (std::size_t i = 0; i < actual.weights.size(); ++i)
    expect_close(actual.weights[i], central_differences(module_.arena().parameter(i)), module_.arena().entries()[i].name);
}

TEST_P(Layers, OverwritesGradientsOrAddsToThem) {
  Tensors once;
  for (const at::Tensor& gradient : gradients().weights) once.push_back(gradient.clone());

  for (std::size_t i = 0; i < once.size(); ++i) module_.arena().gradient(i).fill_(std::numeric_limits<double>::quiet_NaN());
  const Gradients overwritten = gradients();
  for (std::size_t i = 0; i < once.size(); ++i)
    EXPECT_TRUE(at::equal(overwritten.weights[i], once[i])) << "what lay there before must not matter";

  pass_.accumulate = true;
  const Gradients added = gradients();
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(at::allclose(added.weights[i], 2 * once[i], 1e-12, 1e-14));
}

INSTANTIATE_TEST_SUITE_P(, Layers, testing::ValuesIn(cases()), [](const auto& row) { return row.param.name; });

/// The rows of the kinds whose table entry has this flag.
std::vector<Case> cases_with(bool OpKind::*flag) {
  std::vector<Case> rows;
  std::ranges::copy_if(cases(), std::back_inserter(rows),
                       [flag](const Case& row) { return row.kind != Kind::softmax_loss && op_kind(row.kind).*flag; });
  return rows;
}

class OverwritingLayers : public Layers {};

TEST_P(OverwritingLayers, GiveTheSameBitsAsThoseThatDoNot) {
  GraphModule module(graph_of(GetParam(), /*behind_norm=*/true), double_precision());
  spread(module);
  const at::Tensor kept = sample_.clone();
  std::map<std::string, void*> memory;
  module.walk(sample_, pass_, [&](std::size_t part, const at::Tensor& t) { memory[module.graph().layers()[part].name] = t.data_ptr(); });
  Trace trace;
  const at::Tensor out = module.run(sample_, pass_, &trace);
  const at::Tensor input = module.back(probe_, pass_, trace, nullptr, /*wants_input=*/true);
  EXPECT_EQ(memory["layer"], memory["before"]) << "the test is about a layer that overwrites";

  const PlainPass plain = plain_pass(module, sample_, pass_, [&](const at::Tensor&) { return probe_; });
  EXPECT_TRUE(at::equal(sample_, kept)) << "the caller's batch is nobody's to overwrite";
  EXPECT_TRUE(at::equal(out, plain.logits));
  EXPECT_TRUE(at::equal(input, plain.input_gradient));
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) EXPECT_TRUE(at::equal(module.arena().gradient(i), plain.gradients[i]));
}

INSTANTIATE_TEST_SUITE_P(, OverwritingLayers, testing::ValuesIn(cases_with(&OpKind::can_overwrite_input)),
                         [](const auto& row) { return row.param.name; });

class OverwrittenLayers : public Layers {};

TEST_P(OverwrittenLayers, DoNotNeedTheirOutputAgain) {
  Tensors expected;
  for (const at::Tensor& gradient : gradients().weights) expected.push_back(gradient.clone());
  Trace trace;
  const at::Tensor out = output(&trace);
  EXPECT_FALSE(out.is_alias_of(sample_)) << "whoever writes over the output would write over the batch";
  out.fill_(std::numeric_limits<double>::quiet_NaN());
  const at::Tensor input = module_.back(probe_, pass_, trace, nullptr, /*wants_input=*/true);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(module_.arena().gradient(i), expected[i]));
  if (sample_.is_floating_point()) {
    EXPECT_TRUE(at::equal(input, gradients().input));
  }
}

INSTANTIATE_TEST_SUITE_P(, OverwrittenLayers, testing::ValuesIn(cases_with(&OpKind::output_may_be_overwritten)),
                         [](const auto& row) { return row.param.name; });

TEST(LayerKinds, EachHasARowInTheTable) {
  for (int number = 1;; ++number) {  // 0 is the input
    const Kind kind = static_cast<Kind>(number);
    try {
      graph::name_of(kind);
    } catch (const InternalError&) {
      EXPECT_GT(number, static_cast<int>(Kind::softmax_loss));
      break;
    }
    EXPECT_TRUE(std::ranges::any_of(cases(), [&](const Case& row) { return row.kind == kind; }))
        << "no row in tests/nn/cases.cpp for layers of kind " << graph::name_of(kind);
  }
}

TEST(LayerKinds, TheInputAndTheLossAreNoOperations) {
  EXPECT_THROW(op_kind(Kind::input), InternalError);
  EXPECT_THROW(op_kind(Kind::softmax_loss), InternalError);
}

}  // namespace
}  // namespace paceline::nn
