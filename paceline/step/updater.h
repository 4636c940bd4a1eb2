// The optimizer on an arena, on whichever device the arena lies: holds the state buffers, cuts ranges out, clips.
//
// It has state for what its rank holds of Role::moment, and updates that alone. Where every rank holds everything, that is the arena.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "paceline/optim/range_optimizer.h"
#include "paceline/step/strategy.h"
#include "paceline/tensor/arena.h"

namespace paceline::step {

class Updater {
 public:
  /// `comm`: the axis that owners are ranks of; null where everybody holds everything.
  Updater(tensor::Arena& arena, const optim::OptimConfig& config, comm::Communicator* comm = nullptr);

  /// Sets the step's learning rate and number. On CUDA they go to device memory, outside what a recorded step replays.
  void begin_step(const optim::Hyper& hyper);
  /// Updates all that this rank holds with the gradients as they lie in the arena, clipped by the global norm where the recipe says so.
  void update_all();
  /// Updates what this rank holds of the elements [begin, end) of the arena: whole entries, or any range where elementwise(). Not where the
  /// norm clips: that needs them all. On the CPU.
  void update(std::int64_t begin, std::int64_t end);
  bool clips() const { return optimizer_.clips(); }
  bool elementwise() const { return optimizer_.elementwise(); }

  /// The arena's moments have other owners now: the state moves to them. Collective.
  void follow_owners();

  /// "optim.momentum.layer1.0.conv1.weight": all of it, or the rows that begin in what this rank holds. Collective where others hold some.
  std::vector<NamedTensor> state() const;
  /// [arena's length] each, where everybody holds everything.
  const std::vector<at::Tensor>& buffers() const { return state_; }
  void load(std::span<const NamedTensor> state);

 private:
  int rank() const { return comm_ ? comm_->rank() : 0; }
  float* gradients() const;
  void* stream() const;  // the current one, on CUDA
  void bind();           // to the memory as it lies
  void add_rows(std::vector<NamedTensor>& result, const std::string& name, const at::Tensor& state, std::size_t index) const;
  at::Tensor gather_row(const at::Tensor& state, std::int64_t begin, std::int64_t end, int holder) const;
  at::Tensor gather_scalar(const at::Tensor& state, std::int64_t element) const;
  void check(std::span<const NamedTensor> saved) const;

  tensor::Arena& arena_;
  comm::Communicator* comm_;
  optim::RangeOptimizer optimizer_;
  at::Tensor squared_norm_;        // [1] double, on the arena's device; undefined where nothing is clipped
  tensor::Owners owners_;          // of the state, as it lies
  tensor::Shard shard_;            // of it
  std::vector<at::Tensor> state_;  // [shard's length]
  optim::Hyper hyper_;
};

}  // namespace paceline::step
