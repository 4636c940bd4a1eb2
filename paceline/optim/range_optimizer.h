// The optimizer of one flat range of parameters, on the device where the range lies: which tensors are in it, where its state is, and the
// clipping of its gradient. The updater of a worker's arena and a parameter server's range are both made with it.
//
// The memory is its owner's: a worker has tensors of LibTorch, a server has what its allocator gives.
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

/// Elements [begin, end) of a range, whose state lies from `place` on in memory that may be for a part of the range alone.
struct Stretch {
  std::int64_t begin = 0, end = 0, place = 0;
};

/// The parts of `segments` that lie in [begin, end), with their offsets unchanged.
std::vector<Segment> segments_within(std::span<const Segment> segments, std::int64_t begin, std::int64_t end);

class RangeOptimizer {
 public:
  /// `segments` are the range's tensors, ascending, with offsets from its begin. Cuda: on the current device.
  RangeOptimizer(const OptimConfig& config, std::vector<Segment> segments, std::int64_t length, bool cuda);

  /// What the range's owner keeps for it, where the range lies.
  struct Memory {
    float* parameters = nullptr;
    std::vector<float*> state = {};  // one for each of state_names(), zeros at first
    double* squared_norm = nullptr;  // where clips()
    // Whether parameters, and the gradients that updates are given, lie as the state does: at a stretch's place.
    bool placed_parameters = false, placed_gradients = false;
  };
  void bind(Memory memory) { memory_ = std::move(memory); }
  /// Cuda: updates are made of these stretches from now on, which may hold pieces of tensors.
  void cut(std::span<const Stretch> stretches);

  std::vector<std::string> state_names() const { return optimizer_->state_names(); }
  bool elementwise() const { return optimizer_->elementwise(); }
  bool clips() const { return clips_; }
  std::span<const Segment> segments() const { return segments_; }  // decay: as the recipe says

  /// CUDA: enqueues the values that a recorded update will read when it is replayed. Elsewhere updates take them from their arguments.
  void set_hyper(const Hyper& hyper, void* stream);
  /// Updates the whole range, clipped by the norm of its gradient where clips().
  void update(float* gradients, const Hyper& hyper, void* stream = nullptr);
  /// Its first half: the norm of the gradient, where clips().
  void measure_norm(const float* gradients, void* stream = nullptr);
  /// Updates a stretch: whole tensors, or any elements where elementwise(). `clipped`: by the norm that was measured.
  void update(float* gradients, const Stretch& stretch, const Hyper& hyper, void* stream = nullptr, bool clipped = false);
  /// The same in two halves, where not elementwise() and a stretch may hold pieces of tensors: measure() adds the squares of the pieces to
  /// `squares`, by segment, and move() is given those of the whole tensors.
  void measure(float* gradients, const Stretch& stretch, const Hyper& hyper, bool clipped, std::span<Squares> squares);
  void move(float* gradients, const Stretch& stretch, const Hyper& hyper, bool clipped, std::span<const Squares> squares);

  /// Updates the whole range in one pass over memory, on several threads: prepare(block, gradients) writes the gradients of a block to the
  /// cache, the update reads them there, and done(block) follows. In host memory, where elementwise() and not clips().
  using Prepare = std::function<void(const Block& block, float* gradients)>;
  using Done = std::function<void(const Block& block)>;
  void update_in_blocks(const Hyper& hyper, const Prepare& prepare, const Done& done);

 private:
  /// A stretch as an optimizer takes it: pointers, and the tensors in it with their offsets from those.
  struct Placed {
    Buffers buffers;
    std::vector<Segment> pieces;
    std::vector<std::size_t> whole;  // by piece: which of segments() it is of
  };
  Placed place(float* gradients, const Stretch& stretch, void* stream, bool clipped) const;

  OptimConfig config_;
  std::vector<Segment> segments_;
  std::int64_t length_;
  bool clips_;
  std::unique_ptr<Optimizer> optimizer_;
  CudaOptimizer* cuda_ = nullptr;  // the same, where the range lies on a GPU
  Memory memory_;
};

}  // namespace paceline::optim
