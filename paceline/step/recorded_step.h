// A part of a training step that is recorded on a GPU, and recorded again when the batch moves or changes its shape.
#pragma once

#include "paceline/step/batch_pass.h"
#include "paceline/tensor/recorded.h"

namespace paceline::step {

class RecordedStep {
 public:
  /// For work in which no rank waits for another.
  RecordedStep(const c10::Device& device, bool record) : recorded_(device, record) {}
  /// For work in which the ranks of the mesh's tensor axis communicate.
  RecordedStep(const Context& context, bool record);

  void run(const Batch& batch, const std::function<void()>& work) { made(batch, work); }
  /// The same for work that runs `pass`, which sends as much in a replay as it sent when it was recorded.
  void run(const Batch& batch, BatchPass& pass, const std::function<void()>& work);

 private:
  tensor::Recorded::Run made(const Batch& batch, const std::function<void()>& work);

  tensor::Recorded recorded_;
  void* memory_ = nullptr;
  std::vector<std::int64_t> shape_;
  std::int64_t global_samples_ = 0;
};

}  // namespace paceline::step
