// The tensors of a user's module by name: which are running statistics, and which unit they belong to.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "paceline/tensor/arena.h"

namespace paceline::nn {

/// By name; empty: all.
using Takes = std::function<bool(const std::string&)>;

/// Whether a parameter or buffer belongs to a block: "0.weight" to "0"; everything to "".
bool belongs_to(const std::string& tensor, const std::string& block);

bool is_statistic(const at::Tensor& buffer, c10::ScalarType parameters);

/// The running statistics, in the order of the module's buffers. Buffers of another type, like batch counters, stay where they are.
std::vector<std::pair<std::string, at::Tensor>> statistics_of(const torch::nn::Module& module, c10::ScalarType parameters,
                                                              const Takes& takes = nullptr);
/// Moves them into an arena.
tensor::Arena adopt_statistics(torch::nn::Module& module, const tensor::Allocate& allocate, const at::TensorOptions& options,
                               const Takes& takes = nullptr);

/// The momentum of a batch norm's statistics; 0 for other buffers, which a pass does not average.
double momentum_of(torch::nn::Module& module, const std::string& buffer);

}  // namespace paceline::nn
