// A part of a training step that is recorded on a GPU, and recorded again when the batch moves or changes its shape.
#pragma once

#include "paceline/step/strategy.h"
#include "paceline/tensor/recorded.h"

namespace paceline::step {

class RecordedStep {
 public:
  RecordedStep(const c10::Device& device, bool record) : recorded_(device, record) {}

  void run(const Batch& batch, const std::function<void()>& work) {
    if (batch.inputs.data_ptr() != memory_ || batch.inputs.sizes().vec() != shape_ || batch.global_samples != global_samples_)
      recorded_.forget();
    memory_ = batch.inputs.data_ptr(), shape_ = batch.inputs.sizes().vec(), global_samples_ = batch.global_samples;
    recorded_.run(work);
  }

 private:
  tensor::Recorded recorded_;
  void* memory_ = nullptr;
  std::vector<std::int64_t> shape_;
  std::int64_t global_samples_ = 0;
};

}  // namespace paceline::step
