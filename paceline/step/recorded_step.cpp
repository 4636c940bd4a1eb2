#include "paceline/step/recorded_step.h"

#include <utility>

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
    : recorded_(context.model.device(), record, company_of(context.mesh.tensor())), together_(context.mesh.tensor().size() > 1) {}

tensor::Recorded::Run RecordedStep::made(const Batch& batch, const std::function<void()>& work) {
  const Place place{batch.inputs.data_ptr(), batch.targets.defined() ? batch.targets.data_ptr() : nullptr, batch.inputs.sizes().vec(),
                    batch.global_samples};
  const Place before = std::exchange(latest_, place);
  if (place != usual_) {
    if (!together_ && before == usual_ && usual_.inputs) {
      work();
      return tensor::Recorded::Run::called;
    }
    recorded_.forget();
    usual_ = place;
  }
  return recorded_.run(work);
}

at::Tensor RecordedStep::result(const Batch& batch, BatchPass* pass, const std::function<at::Tensor()>& work) {
  using Run = tensor::Recorded::Run;
  at::Tensor made_now;
  const Run run = made(batch, [&] { made_now = work(); });
  if (run == Run::recorded) recorded_result_ = made_now;
  if (pass && run == Run::recorded) pass->was_recorded();
  if (pass && run == Run::replayed) pass->was_replayed();
  return run == Run::replayed ? recorded_result_ : made_now;
}

}  // namespace paceline::step
