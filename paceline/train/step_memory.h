// The peak memory of a worker in one of its first steps: its state by the arena's ledger, and what passes need on top by LibTorch's
// allocators. Predictions of memory are compared with it. Counting slows allocations slightly, so it ends after some steps.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include "paceline/tensor/arena.h"
#include "paceline/tensor/memory_meter.h"

namespace paceline::train {

/// Use it only in the thread that makes the steps.
class StepMemory {
 public:
  explicit StepMemory(const tensor::Arena& arena) : ledger_(arena.ledger()) {
    if (!tensor::MemoryMeter::counts_here()) meter_ = std::make_unique<tensor::MemoryMeter>();
  }

  void begin_step() {
    if (!meter_) return;
    before_ = meter_->now();
    meter_->reset_peaks();
  }
  /// The first step allocates what later ones reuse: moments, buffers.
  void end_step() {
    if (!meter_) return;
    if (++steps_ == 1) ledger_.reset_peaks();  // a model is created whole, and then divided
    else most_ = std::max(most_, meter_->peak() - before_);
    if (steps_ == kSteps) bytes_ = ledger_.peak() + most_, meter_.reset();
  }

  /// Nullopt until enough steps have been made.
  std::optional<std::int64_t> bytes() const { return bytes_; }

 private:
  static constexpr int kSteps = 4;
  tensor::Ledger& ledger_;
  std::unique_ptr<tensor::MemoryMeter> meter_;
  std::int64_t before_ = 0, most_ = 0;
  int steps_ = 0;
  std::optional<std::int64_t> bytes_;
};

}  // namespace paceline::train
