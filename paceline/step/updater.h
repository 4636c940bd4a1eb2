// The optimizer of an arena, on the arena's device: holds the state buffers, updates ranges, clips.
//
// It has state for what its rank holds of Role::moment, and updates only that. If every rank holds everything, that is the whole arena. If
// gradients have owners too, it keeps their sum for what its rank holds, and the arena only holds gradients on their way to it.
//
// If the arena stores parameters in 16 bits, it has a master copy in fp32 of those that its rank holds, and if it stores gradients in 16
// bits, a copy of these in fp32; the optimizer works on the copies, and the arena's parameters are the masters rounded.
//
// If it is offloaded, all that it holds is in host memory, including master copies of the parameters, and the host updates: gradients are
// copied down, and parameters up, piece by piece, while it computes.
//
// Norms are those of whole tensors and of the whole model: their squares are summed over the owners and the private entries along the data
// axis, over the slices along the tensor axis, and over the stages along the pipeline axis. The order of these additions is fixed, but
// differs from that of one worker: so a clipped update, LARS and LAMB differ from one worker's in the last bits.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "paceline/comm/mesh.h"
#include "paceline/optim/range_optimizer.h"
#include "paceline/step/state.h"
#include "paceline/tensor/arena.h"

namespace paceline::step {

class Updater {
 public:
  /// `mesh`: owners are ranks of its data axis; null if this rank has the whole model for itself. `offload` is for an arena on a GPU; on
  /// the CPU it makes the same copies needlessly, which tests use.
  Updater(tensor::Arena& arena, const optim::OptimConfig& config, const comm::Mesh* mesh = nullptr, bool offload = false);

  /// Sets the step's learning rate and number. On CUDA they go to device memory, outside what a recorded step replays.
  void begin_step(const optim::Hyper& hyper);
  /// If gradients have owners: adds what this rank holds of the elements [begin, end) of the arena's gradients to its sum, or begins a
  /// new sum.
  void keep_gradients(std::int64_t begin, std::int64_t end, bool add);
  /// Updates all that this rank holds with its gradients, clipped by the global norm if the recipe says so. Collective if ranks share the
  /// tensors and norms are needed.
  void update_all();
  /// Updates what this rank holds of the elements [begin, end) of the arena: whole entries, or any range if elementwise(). Not if
  /// gradients are clipped, which needs the norm of all. On the CPU.
  void update(std::int64_t begin, std::int64_t end);
  bool clips() const { return optimizer_.clips(); }
  bool elementwise() const { return optimizer_.elementwise(); }
  /// Whether ranks must communicate in update_all().
  bool meets() const;
  /// Whether the arena stores parameters in 16 bits.
  bool rounds() const { return rounds_; }
  /// Whether all gradients that this rank holds are finite. For an arena of gradients in 16 bits, before update_all(). Waits for the
  /// device.
  bool finite();

  /// To be called after the owners of the arena's moments, and perhaps of its gradients, have changed: moves the state to them. Collective.
  void follow_owners();

  /// "optim.momentum.layer1.0.conv1.weight": what this rank holds of it.
  std::vector<NamedTensor> state() const;
  /// [arena's length] each, if all ranks hold everything.
  const std::vector<at::Tensor>& buffers() const { return state_; }
  void load(std::span<const NamedTensor> state);

 private:
  /// What ranks of an axis add up, because they hold different pieces of these tensors.
  struct SharedSquares {
    comm::Communicator* axis;
    at::Tensor entries;  // their indices
    at::Tensor sums;     // [entries, 2]: their rows of squares_, on their way
  };

  int rank() const { return comm_ ? comm_->rank() : 0; }
  bool shares_tensors() const;  // pieces of them, with other ranks
  float* gradients() const;
  void* stream() const;                    // the current one, on CUDA
  void bind();                             // to the current memory
  std::vector<std::string> names() const;  // of the state: the optimizer's, and the masters'
  tensor::Role role(std::size_t state) const {
    return has_masters() && state + 1 == names().size() ? tensor::Role::master : tensor::Role::moment;
  }
  bool has_masters() const { return rounds_ || offload_; }
  bool copies_gradients() const { return offload_ || arena_.dtype(tensor::Role::gradient) != c10::kFloat; }
  at::Tensor allocate(tensor::Role role, const tensor::Shard& shard) const;
  void fill_masters();
  void update_beside_copies();
  void convert_gradients(std::int64_t begin, std::int64_t end);  // once the arena's are complete
  void round(std::int64_t begin, std::int64_t end);
  void measure_norm();
  void add_squared_norm(const tensor::Shard::Held& held, const at::Tensor& sum) const;
  void share_squares();
  void update_adapted();
  void check(std::span<const NamedTensor> saved) const;

  tensor::Arena& arena_;
  const comm::Mesh* mesh_;
  comm::Communicator* comm_;  // its data axis
  optim::RangeOptimizer optimizer_;
  at::Tensor squared_norm_;  // [1] double, where the updates are computed; undefined if nothing is clipped
  at::Tensor squares_;       // [entries, 2] double, likewise: optim::Squares; undefined if elementwise()
  std::vector<SharedSquares> shared_squares_;
  tensor::Owners owners_;          // of the current state
  tensor::Shard shard_;            // of it
  std::vector<at::Tensor> state_;  // [shard's length], by names()
  bool rounds_, offload_;
  at::Tensor gradients_;  // [shard's length] in fp32; undefined if the arena's are used
  optim::Hyper hyper_;
};

}  // namespace paceline::step
