// Batch norms of a user's module that see the samples of all workers, in training mode, forward and backward.
//
// The module is not changed. LibTorch's BatchNorm1d, 2d and 3d call torch::batch_norm in a forward() that is not virtual, and a member
// `torch::nn::BatchNorm2d norm` of the user's class cannot be replaced from outside. So the running means of the norms are marked, and a
// kernel that is called before LibTorch's torch::batch_norm handles the marked ones, whatever the caller: a member, a child of a
// Sequential, torch::nn::functional::batch_norm on the same statistics. Others are passed on to LibTorch. The kernel is registered when
// the first norms of a process are marked.
//
// All workers run the same norms in the same order. A worker without samples passes an empty batch through the module.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "paceline/nn/joint_norm.h"

namespace paceline::nn {

class SynchronisedNorms {
 public:
  struct Norm {
    std::string name;  // in the module
    SumOverWorkers sum;
  };

  /// Synchronises the norms until it is destroyed. The later of two for one module counts. ConfigError names a norm without running
  /// statistics, which cannot be marked.
  SynchronisedNorms(torch::nn::Module& module, const SumOverWorkers& sum);

  std::size_t count() const { return norms_.size(); }

 private:
  void add(const torch::nn::Module& part, const std::string& name, const SumOverWorkers& sum);

  std::vector<std::shared_ptr<const Norm>> norms_;  // marks hold weak references
};

}  // namespace paceline::nn
