#include "paceline/step/recorded_step.h"

namespace paceline::step {
namespace {

tensor::Company company_of(comm::Communicator& comm) {
  return {.rank = comm.rank(), .size = comm.size(), .tell = [&comm](std::int64_t word) {
            std::vector<std::int64_t> words(static_cast<std::size_t>(comm.size()));
            words[static_cast<std::size_t>(comm.rank())] = word;
            comm.run(comm::all_gather(words));
            return words;
          }};
}

}  // namespace

RecordedStep::RecordedStep(const Context& context, bool record)
    : recorded_(context.model.device(), record, company_of(context.mesh.tensor())) {}

tensor::Recorded::Run RecordedStep::made(const Batch& batch, const std::function<void()>& work) {
  if (batch.inputs.data_ptr() != memory_ || batch.inputs.sizes().vec() != shape_ || batch.global_samples != global_samples_)
    recorded_.forget();
  memory_ = batch.inputs.data_ptr(), shape_ = batch.inputs.sizes().vec(), global_samples_ = batch.global_samples;
  return recorded_.run(work);
}

void RecordedStep::run(const Batch& batch, BatchPass& pass, const std::function<void()>& work) {
  const auto run = made(batch, work);
  if (run == tensor::Recorded::Run::recorded) pass.was_recorded();
  if (run == tensor::Recorded::Run::replayed) pass.was_replayed();
}

}  // namespace paceline::step
