// The optimizer on an arena, on whichever device the arena lies: holds the state buffers, cuts ranges out, clips.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "paceline/optim/cuda_optimizer.h"
#include "paceline/optim/optimizer.h"
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
  bool clips() const { return squared_norm_.defined(); }
  bool elementwise() const { return optimizer_->elementwise(); }

  std::vector<NamedTensor> state() const;                            // "optim.momentum.layer1.0.conv1.weight"
  const std::vector<at::Tensor>& buffers() const { return state_; }  // [length] each
  void load(std::span<const NamedTensor> state);

 private:
  tensor::Arena& arena_;
  std::vector<optim::Segment> segments_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::CudaOptimizer* cuda_ = nullptr;  // the same optimizer, where the arena lies on a GPU
  at::Tensor squared_norm_;               // [1] double, on the arena's device; undefined where nothing is clipped
  std::vector<at::Tensor> state_;
  optim::Buffers buffers_;
  optim::Hyper hyper_;
};

}  // namespace paceline::step
