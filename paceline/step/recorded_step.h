// A part of a training step, or of an evaluation, that is recorded on a GPU.
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

  /// A batch in other memory or of another shape, like an epoch's last, is computed without the recording, which stays; if the next one is
  /// like it, the work is recorded again. Ranks that record together record again at once, since only some may see a difference.
  void run(const Batch& batch, const std::function<void()>& work) { made(batch, work); }
  /// The same for work that computes a tensor, which is returned: a replay writes the one that was recorded.
  at::Tensor result(const Batch& batch, const std::function<at::Tensor()>& work) { return result(batch, nullptr, work); }
  /// And for work that runs `pass`, which sends as much in a replay as it sent when it was recorded.
  at::Tensor result(const Batch& batch, BatchPass& pass, const std::function<at::Tensor()>& work) { return result(batch, &pass, work); }

 private:
  struct Place {
    void *inputs = nullptr, *targets = nullptr;
    std::vector<std::int64_t> shape;
    std::int64_t global_samples = 0;
    bool operator==(const Place&) const = default;
  };

  tensor::Recorded::Run made(const Batch& batch, const std::function<void()>& work);
  at::Tensor result(const Batch& batch, BatchPass* pass, const std::function<at::Tensor()>& work);

  tensor::Recorded recorded_;
  at::Tensor recorded_result_;  // where a replay writes
  bool together_ = false;
  Place usual_, latest_;  // of the batch that is recorded, and of the latest one
};

}  // namespace paceline::step
