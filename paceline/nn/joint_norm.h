// A batch norm over the samples of all workers: what GraphModule's norms (ops/norm.cpp) and a user's (synchronised_norms.h) compute.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace paceline::nn {

/// Adds a tensor up over all workers, in place. All call it the same number of times, in the same order.
using SumOverWorkers = std::function<void(at::Tensor&)>;

/// The tensors of a norm. Undefined if it has none.
struct NormTensors {
  at::Tensor scale, shift;                    // [channels], of any type
  at::Tensor running_mean, running_variance;  // [channels]; updated
  double momentum = 0.1, epsilon = 1e-5;
};

struct JointNorm {
  at::Tensor output;
  at::Tensor mean, inverse_deviation, count;  // of all workers' samples, for the backward pass
};

/// `input` [n, channels, …]; n may be 0 on some workers, and is not the same on all. `name` is for the ConfigError that is thrown if
/// all workers together have only one value per channel.
JointNorm joint_norm(const at::Tensor& input, const NormTensors& norm, const SumOverWorkers& sum, const std::string& name);

struct JointNormGradients {
  at::Tensor input;
  at::Tensor scale, shift;  // of this worker's samples only: averaging the gradients adds the others'
};

/// `joint`: what the forward pass of `input` returned.
JointNormGradients joint_norm_gradients(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& scale,
                                        const JointNorm& joint, const SumOverWorkers& sum);

}  // namespace paceline::nn
