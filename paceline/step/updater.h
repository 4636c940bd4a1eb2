// The optimizer on an arena: holds the state buffers as tensors, and names them for checkpoints.
#pragma once

#include <span>
#include <vector>

#include "paceline/optim/range_optimizer.h"
#include "paceline/step/strategy.h"
#include "paceline/tensor/arena.h"

namespace paceline::step {

class Updater {
 public:
  Updater(tensor::Arena& arena, const optim::OptimConfig& config);

  /// Sets the step's learning rate and number. On CUDA they go to device memory, outside what a recorded step replays.
  void begin_step(const optim::Hyper& hyper);
  /// Updates all entries with the gradients as they lie in the arena, clipped by the global norm where the recipe says so.
  void update_all();
  /// Updates the elements [begin, end) of the arena: whole entries, or any range where elementwise(). Not where the norm clips: that needs
  /// them all. On the CPU.
  void update(std::int64_t begin, std::int64_t end);
  bool clips() const { return optimizer_.clips(); }
  bool elementwise() const { return optimizer_.elementwise(); }

  std::vector<NamedTensor> state() const;                            // "optim.momentum.layer1.0.conv1.weight"
  const std::vector<at::Tensor>& buffers() const { return state_; }  // [length] each
  void load(std::span<const NamedTensor> state);

 private:
  float* gradients() const;
  void* stream() const;  // the current one, on CUDA

  tensor::Arena& arena_;
  optim::RangeOptimizer optimizer_;
  at::Tensor squared_norm_;  // [1] double, on the arena's device; undefined where nothing is clipped
  std::vector<at::Tensor> state_;
  optim::Hyper hyper_;
};

}  // namespace paceline::step
