// The optimizer of one flat range of parameters, on the range's device: its tensors, its state, and the clipping of its gradient. Both the
// updater of a worker's arena and a parameter server use it.
//
// The caller owns the memory: a worker has LibTorch tensors, a server has memory from its own allocator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/optim/cuda_optimizer.h"

namespace paceline::optim {

struct Block;  // parallel.h

/// Elements [begin, end) of a range, whose state begins at `place`, in memory that may hold only a part of the range.
struct Stretch {
  std::int64_t begin = 0, end = 0, place = 0;
};

/// The parts of `segments` in [begin, end), with their offsets unchanged.
std::vector<Segment> segments_within(std::span<const Segment> segments, std::int64_t begin, std::int64_t end);

class RangeOptimizer {
 public:
  /// `segments` are the range's tensors, ascending, with offsets from its beginning. CUDA: on the current device.
  RangeOptimizer(const OptimConfig& config, std::vector<Segment> segments, std::int64_t length, bool cuda);

  /// The memory that the caller keeps for it, on the range's device.
  struct Memory {
    float* parameters = nullptr;
    std::vector<float*> state = {};  // one for each of state_names(), zeros at first
    double* squared_norm = nullptr;  // if clips()
    // Whether parameters, and the gradients passed to updates, are stored like the state: at a stretch's place.
    bool placed_parameters = false, placed_gradients = false;
  };
  void bind(Memory memory) { memory_ = std::move(memory); }
  /// CUDA: from now on, updates consist of these stretches, which may hold pieces of tensors.
  void cut(std::span<const Stretch> stretches);

  std::vector<std::string> state_names() const { return optimizer_->state_names(); }
  bool elementwise() const { return optimizer_->elementwise(); }
  bool clips() const { return clips_; }
  std::span<const Segment> segments() const { return segments_; }  // decay: as the recipe says

  /// CUDA: enqueues the values that a recorded update will read when it is replayed. On the CPU, updates take them from their arguments.
  void set_hyper(const Hyper& hyper, void* stream);
  /// Updates the whole range, clipped by the norm of its gradient if clips().
  void update(float* gradients, const Hyper& hyper, void* stream = nullptr);
  /// Its first half: the norm of the gradient, if clips().
  void measure_norm(const float* gradients, void* stream = nullptr);
  /// Updates a stretch: whole tensors, or any elements if elementwise(). `clipped`: by the norm that was measured before.
  void update(float* gradients, const Stretch& stretch, const Hyper& hyper, void* stream = nullptr, bool clipped = false);
  /// The same in two halves, for a rule that is not elementwise() if a stretch may hold pieces of tensors: measure() adds the squares of
  /// the pieces to `squares`, and move() takes those of the whole tensors. There is one for each of segments(), on the range's device.
  void measure(float* gradients, const Stretch& stretch, const Hyper& hyper, void* stream, bool clipped, Squares* squares);
  void move(float* gradients, const Stretch& stretch, const Hyper& hyper, void* stream, bool clipped, const Squares* squares);

  /// Updates the whole range in one pass over memory, on several threads: prepare(block, gradients) writes the gradients of a block to the
  /// cache, the update reads them there, and done(block) follows. In host memory, if elementwise() and not clips().
  using Prepare = std::function<void(const Block& block, float* gradients)>;
  using Done = std::function<void(const Block& block)>;
  void update_in_blocks(const Hyper& hyper, const Prepare& prepare, const Done& done);

 private:
  /// A stretch as an optimizer takes it: pointers, and its tensors with their offsets from those.
  struct Placed {
    Buffers buffers;
    std::vector<Segment> pieces;
  };
  Placed place(float* gradients, const Stretch& stretch, void* stream, bool clipped) const;

  OptimConfig config_;
  std::vector<Segment> segments_;
  std::int64_t length_;
  bool clips_;
  std::unique_ptr<Optimizer> optimizer_;
  CudaOptimizer* cuda_ = nullptr;  // the same, if the range is on a GPU
  Memory memory_;
};

}  // namespace paceline::optim
