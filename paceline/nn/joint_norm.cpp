#include "paceline/nn/joint_norm.h"

#include <ATen/ATen.h>

#include "paceline/nn/ops/ops.h"

namespace paceline::nn {
namespace {

std::vector<std::int64_t> all_but_channels(const at::Tensor& x) {
  std::vector<std::int64_t> dims = {0};
  for (std::int64_t dim = 2; dim < x.dim(); ++dim) dims.push_back(dim);
  return dims;
}

at::Tensor as_channels(const at::Tensor& values, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = x.size(1);
  return values.view(shape);
}

}  // namespace

// Each worker sums over its own samples, and the sums are added. Deviations from the common mean are summed in a second round, because the
// difference of two large sums would lose digits.
JointNorm joint_norm(const at::Tensor& input, const NormTensors& norm, const SumOverWorkers& sum, const std::string& name) {
  const bool tracks = norm.running_mean.defined();
  const at::Tensor x = tracks ? input.to(norm.running_mean.scalar_type()) : input;
  const std::vector<std::int64_t> over = all_but_channels(x);
  const std::int64_t channels = x.size(1), values = x.numel() / channels;
  at::Tensor sums = at::cat({x.sum(over), at::full({1}, static_cast<double>(values), x.options())});
  sum(sums);
  // Checked only if it is possible: on a GPU, reading the count means waiting.
  if (values <= 1) refuse_one_value(name, sums[channels].item<std::int64_t>());
  const at::Tensor count = sums[channels], mean = sums.narrow(0, 0, channels) / count;
  at::Tensor squares = (x - as_channels(mean, x)).square().sum(over);
  sum(squares);
  const at::Tensor variance = squares / count, inverse_deviation = (variance + norm.epsilon).rsqrt();
  if (tracks) {
    at::Tensor(norm.running_mean).lerp_(mean, norm.momentum);
    at::Tensor(norm.running_variance).lerp_(squares / (count - 1), norm.momentum);
  }
  const at::Tensor factor = norm.scale.defined() ? inverse_deviation * norm.scale.to(x.scalar_type()) : inverse_deviation;
  const at::Tensor shift = norm.shift.defined() ? norm.shift.to(x.scalar_type()) - mean * factor : -mean * factor;
  return {(x * as_channels(factor, x) + as_channels(shift, x)).to(input.scalar_type()), mean, inverse_deviation, count};
}

JointNormGradients joint_norm_gradients(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& scale,
                                        const JointNorm& joint, const SumOverWorkers& sum) {
  const at::Tensor x = input.to(joint.mean.scalar_type()), dy = gradient.to(joint.mean.scalar_type());
  const std::vector<std::int64_t> over = all_but_channels(x);
  const std::int64_t channels = x.size(1);
  const at::Tensor normalised = (x - as_channels(joint.mean, x)) * as_channels(joint.inverse_deviation, x);
  const at::Tensor shift_gradient = dy.sum(over), scale_gradient = (dy * normalised).sum(over);
  at::Tensor sums = at::cat({shift_gradient, scale_gradient});
  sum(sums);
  sums = sums / joint.count;
  const at::Tensor centred =
      dy - as_channels(sums.narrow(0, 0, channels), x) - normalised * as_channels(sums.narrow(0, channels, channels), x);
  const at::Tensor factor = scale.defined() ? joint.inverse_deviation * scale.to(x.scalar_type()) : joint.inverse_deviation;
  return {(centred * as_channels(factor, x)).to(gradient.scalar_type()), scale_gradient, shift_gradient};
}

}  // namespace paceline::nn
