#include "paceline/nn/loss.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/graph/working_sets.h"
#if PACELINE_WITH_CUDA
#include "paceline/nn/loss_cuda.h"
#include "paceline/tensor/recorded.h"
#endif

namespace paceline::nn {
namespace {

/// The mean that a user's function gives, as a sum over the targets.
at::Tensor sum_of(const at::Tensor& mean, const at::Tensor& targets, const std::string& what) {
  if (!mean.defined() || mean.numel() != 1 || !mean.is_floating_point())
    throw ConfigError(fmt::format("the {} of a batch must be one floating-point number, its mean over the targets, not {}; reduce it", what,
                                  mean.defined()
                                      ? fmt::format("a tensor of {} values of type {}", mean.numel(), c10::toString(mean.scalar_type()))
                                      : std::string("an undefined tensor")));
  return mean.detach().reshape({}).to(at::kDouble) * static_cast<double>(targets.numel());
}

/// Sums of losses and right answers of some rows: [2] double. Their gradient goes to `gradient` if that is defined.
at::Tensor loss_of_chunk(const at::Tensor& logits, const at::Tensor& targets, double smoothing, double scale, at::Tensor gradient) {
  const auto classes = static_cast<double>(logits.size(1));
  const bool half = logits.scalar_type() == at::kBFloat16 || logits.scalar_type() == at::kHalf;
  const at::Tensor labels = targets.unsqueeze(1);
  const at::Tensor rows = half ? logits.to(at::kFloat) : logits;
  at::Tensor log_probabilities = at::log_softmax(rows, 1);
  at::Tensor loss = log_probabilities.gather(1, labels).sum(at::kDouble).mul_(smoothing - 1);
  if (smoothing > 0) loss.sub_(log_probabilities.sum(at::kDouble), smoothing / classes);
  const at::Tensor right = log_probabilities.argmax(1, true).eq(labels).sum().to(at::kDouble);
  if (!gradient.defined()) return at::stack({loss, right});

  // Not with exp() on a CPU: LibTorch uses MKL's vector functions for it if it has them, and those, called by several threads at once on
  // a processor with AVX-512, do not always return the same last bit.
  at::Tensor made = rows.is_cpu() ? at::softmax(rows, 1) : log_probabilities.exp_();
  made.scatter_add_(1, labels, at::full({1, 1}, smoothing - 1, made.options()).expand_as(labels));
  if (smoothing > 0) made.sub_(smoothing / classes);
  if (half) gradient.copy_(made.mul_(scale));
  else at::mul_out(gradient, made, at::scalar_tensor(scale, made.options()));
  return at::stack({loss, right});
}

#if PACELINE_WITH_CUDA
bool has_kernel(const at::Tensor& rows, const at::Tensor& labels) {
  return rows.is_cuda() && labels.device() == rows.device() && labels.numel() == rows.size(0) && rows.is_contiguous() &&
         labels.is_contiguous() && labels.scalar_type() == at::kLong &&
         (rows.scalar_type() == at::kBFloat16 || rows.scalar_type() == at::kFloat);
}

at::Tensor loss_by_kernel(const at::Tensor& rows, const at::Tensor& labels, double smoothing, double scale, const at::Tensor& gradient) {
  const at::Tensor sums = at::empty({2, rows.size(0)}, rows.options().dtype(at::kDouble));
  launch_softmax_loss({rows.size(0), rows.size(1), rows.scalar_type() == at::kBFloat16}, rows.data_ptr(), labels.data_ptr<std::int64_t>(),
                      smoothing, scale, sums.data_ptr<double>(), gradient.defined() ? gradient.data_ptr() : nullptr,
                      tensor::current_stream(rows.device()));
  return sums.sum(1);
}
#else
bool has_kernel(const at::Tensor&, const at::Tensor&) { return false; }
at::Tensor loss_by_kernel(const at::Tensor&, const at::Tensor&, double, double, const at::Tensor&) {
  throw InternalError("no kernel of the loss in a build without CUDA");
}
#endif

}  // namespace

Scored SoftmaxLoss::score(const at::Tensor& output, const at::Tensor& targets, double scale) const {
  return softmax_loss(output, targets, smoothing_, scale, true);
}

at::Tensor SoftmaxLoss::evaluate(const at::Tensor& output, const at::Tensor& targets) const {
  return softmax_loss(output, targets, 0, 1, false).sums;
}

Scored softmax_loss(const at::Tensor& logits, const at::Tensor& targets, double smoothing, double scale, bool wants_gradient) {
  at::NoGradGuard no_grad;
  const std::int64_t classes = logits.size(-1);
  const at::Tensor rows = logits.reshape({-1, classes}), labels = targets.reshape({-1});
  at::Tensor gradient = wants_gradient ? at::empty_like(rows, at::MemoryFormat::Contiguous) : at::Tensor();
  Scored result;
  if (has_kernel(rows, labels)) {
    result.sums = loss_by_kernel(rows, labels, smoothing, scale, gradient);
  } else {
    const std::int64_t most = std::max<std::int64_t>(graph::kLogitsAtOnce / classes, 1);
    result.sums = at::zeros({2}, rows.options().dtype(at::kDouble));
    for (std::int64_t begin = 0; begin < rows.size(0); begin += most) {
      const std::int64_t count = std::min(most, rows.size(0) - begin);
      result.sums.add_(loss_of_chunk(rows.narrow(0, begin, count), labels.narrow(0, begin, count), smoothing, scale,
                                     wants_gradient ? gradient.narrow(0, begin, count) : gradient));
    }
  }
  if (wants_gradient) result.gradient = gradient.view(logits.sizes());
  return result;
}

FunctionLoss::FunctionLoss(Mean loss, std::vector<Metric> metrics) : loss_(std::move(loss)) {
  if (!loss_) throw ConfigError("the loss is an empty function; give the Trainer one that returns a batch's mean loss");
  for (Metric& metric : metrics) {
    if (metric.name.empty() || !metric.mean) throw ConfigError("a metric lacks its name or its function; give it both");
    if (metric.name == "accuracy") accuracy_ = std::move(metric.mean);
    else others_.push_back(std::move(metric));
  }
}

at::Tensor FunctionLoss::right(const at::Tensor& output, const at::Tensor& targets) const {
  const at::NoGradGuard no_grad;
  if (!accuracy_) return at::zeros({}, output.options().dtype(at::kDouble));
  return sum_of(accuracy_(output, targets), targets, "metric 'accuracy'");
}

Scored FunctionLoss::score(const at::Tensor& output, const at::Tensor& targets, double scale) const {
  const at::AutoGradMode differentiates(true);
  const at::Tensor leaf = output.detach().requires_grad_(true);
  const at::Tensor mean = loss_(leaf, targets);
  Scored result;
  result.sums = at::stack({sum_of(mean, targets, "loss"), right(output, targets)});
  if (!mean.requires_grad())
    throw ConfigError("the loss does not depend on the model's output, or was computed without autograd; there is nothing to train");
  const at::Tensor factor = at::full_like(mean, scale * static_cast<double>(targets.numel()));
  result.gradient = torch::autograd::grad({mean}, {leaf}, {factor}).front();
  return result;
}

at::Tensor FunctionLoss::evaluate(const at::Tensor& output, const at::Tensor& targets) const {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums = {sum_of(loss_(output, targets), targets, "loss"), right(output, targets)};
  for (const Metric& metric : others_)
    sums.push_back(sum_of(metric.mean(output, targets), targets, fmt::format("metric '{}'", metric.name)));
  return at::stack(sums);
}

std::vector<std::string> FunctionLoss::metrics() const {
  std::vector<std::string> names;
  for (const Metric& metric : others_) names.push_back(metric.name);
  return names;
}

}  // namespace paceline::nn
