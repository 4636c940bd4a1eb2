// A strategy owns the training step: what is computed where, what is sent when, and which range of the arena is updated with what.
//
// The Trainer knows only this interface and contains no strategy's name. One file a strategy, one row in registry.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/clock.h"
#include "paceline/base/config.h"
#include "paceline/base/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/observe/event.h"
#include "paceline/optim/optimizer.h"

namespace paceline::strategies {

/// [strategy] of a recipe.
struct StrategyConfig {
  std::string name = "single";
  void describe(Section& section);
};

/// What a strategy works with. Everything outlives it.
struct Context {
  nn::GraphModule& module;
  const optim::OptimConfig& optim;
  observe::Bus& bus;
  const Clock& clock;
  std::uint64_t seed = 0;
  double label_smoothing = 0;
  std::int64_t micro_batches = 1;  // a batch is computed in so many parts whose gradients are added
  bool record_steps = true;        // CUDA: record the step in a graph
};

/// A worker's share of a global batch, on the module's device.
struct Batch {
  at::Tensor inputs, targets;
};

/// Where the run stands, and what the schedule says there.
struct Point {
  std::int64_t step = 1;  // of the whole run, from 1
  double rate = 0;
};

struct StepResult {
  at::Tensor sums;           // [2] double on the device: sum of losses, right answers; good until the next step
  std::int64_t targets = 0;  // how many they are sums over
};

/// A tensor of the training state under a name that says nothing of the number of workers.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual void setup(const Context& context) = 0;
  virtual StepResult step(const Batch& batch, const Point& point) = 0;
  /// Everything beyond the module's own tensors that the next step depends on. load() gets tensors of these names and shapes back.
  virtual std::vector<NamedTensor> save() const = 0;
  virtual void load(std::span<const NamedTensor> state) = 0;
};

using MakeStrategy = std::unique_ptr<Strategy> (*)(const StrategyConfig&);
std::span<const Entry<MakeStrategy>> strategies();
std::unique_ptr<Strategy> make_strategy(const StrategyConfig& config);

}  // namespace paceline::strategies
