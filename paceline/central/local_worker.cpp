#include "paceline/central/local_worker.h"

#include <ATen/ATen.h>

#include "paceline/step/finite_tensors.h"

namespace paceline::central {

std::unique_ptr<step::Updater> make_updater(const Duties& duties, tensor::Arena& arena, const optim::OptimConfig& optim) {
  return duties.optimizes() ? std::make_unique<step::Updater>(arena, optim) : nullptr;
}

LocalWorker::LocalWorker(const Duties& duties, NormReports* norms, tensor::Arena& arena, step::Updater* updater, bool shares_module)
    : duties_(duties), norms_(norms), arena_(arena), updater_(updater), shares_module_(shares_module) {
  const bool copies = shares_module && duties.departs();
  memory_.parameters = copies ? arena.parameters().clone() : arena.parameters();
  if (shares_module || (duties.departs() && !duties.replica)) memory_.pushed = at::zeros_like(arena.gradients());
  if (shares_module && updater && !updater->buffers().empty())
    memory_.momentum = at::zeros({std::ssize(updater->buffers()), arena.length()}, arena.parameters().options());
  if (duties.cancellable && memory_.momentum.defined()) memory_.momentum_before = at::zeros_like(memory_.momentum);
  if (norms && norms->any()) memory_.running = norms->initial(), memory_.statistics = norms->initial();
}

const at::Tensor& LocalWorker::sent() const {
  if (refused_ && updater_) return arena_.gradients();  // the server sees why
  if (duties_.replica) return memory_.parameters;
  return memory_.pushed.defined() ? memory_.pushed : arena_.gradients();
}

at::Tensor LocalWorker::finite() const {
  const at::Tensor& values = sent();
  if (refused_ || values.device().is_cpu()) return at::full({1}, !refused_, values.options().dtype(at::kBool));
  return step::finite_on_device(values).view({1});
}

void LocalWorker::pulled() {
  if (duties_.steps) memory_.pushed.copy_(memory_.parameters);
}

void LocalWorker::take_the_module() {
  if (shares_module_ && duties_.departs()) at::Tensor(arena_.parameters()).copy_(memory_.parameters);
}

void LocalWorker::after_pass(std::int64_t micro_batches) {
  if (norms_ && norms_->any()) norms_->after_pass(memory_.statistics, memory_.running, micro_batches);
}

bool LocalWorker::take_gradient(float rate) {
  const at::Tensor& gradients = arena_.gradients();
  const bool first = visits(), last = ends_period();
  ++iteration_, ++since_visit_;
  updates_before_ = updates_;
  refused_ = updater_ && !step::all_finite(gradients);  // keeps it out of the momentum and the parameters
  if (refused_) return true;
  if (updater_) {
    own_step(rate);
    if (last && duties_.steps) memory_.pushed.sub_(memory_.parameters);
    return last;
  }
  ++updates_;
  if (memory_.pushed.defined()) {
    if (first) memory_.pushed.copy_(gradients);
    else memory_.pushed.add_(gradients);
  }
  if (duties_.departs()) at::Tensor(memory_.parameters).add_(gradients, -rate);
  return last;
}

bool LocalWorker::take_step() {
  const bool last = ends_period();
  ++iteration_, ++since_visit_;
  if (!last) return false;
  if (duties_.steps) memory_.pushed.sub_(memory_.parameters);
  refused_ = !step::all_finite(sent());
  return true;
}

void LocalWorker::call_off() {
  if (updater_ && updates_ > updates_before_ && memory_.momentum.defined()) std::swap(memory_.momentum, memory_.momentum_before);
  updates_ = updates_before_, since_visit_ = 0;
}

void LocalWorker::resume_at(std::int64_t iteration, std::int64_t since_visit, std::int64_t skipped, bool finite) {
  iteration_ = iteration, since_visit_ = since_visit, updates_ = iteration - skipped;
  refused_ = updater_ && !finite;
  updates_before_ = iteration == 0 || refused_ ? updates_ : updates_ - 1;
}

void LocalWorker::own_step(float rate) {
  const std::vector<at::Tensor>& buffers = updater_->buffers();
  const auto row = [&](std::size_t i) { return memory_.momentum[static_cast<std::int64_t>(i)]; };
  if (memory_.momentum.defined())
    for (std::size_t i = 0; i < buffers.size(); ++i) at::Tensor(buffers[i]).copy_(row(i));
  updater_->begin_step({.rate = rate, .step = ++updates_});
  updater_->update_all();
  if (duties_.cancellable) std::swap(memory_.momentum, memory_.momentum_before);
  if (memory_.momentum.defined())
    for (std::size_t i = 0; i < buffers.size(); ++i) row(i).copy_(buffers[i]);
  if (shares_module_) memory_.parameters.copy_(arena_.parameters());
}

std::vector<step::NamedTensor> LocalWorker::save() const {
  if (!duties_.steps) return {};
  std::vector<step::NamedTensor> state = updater_->state();
  state.push_back({"updates", at::tensor({updates_}, at::kLong)});
  return state;
}

void LocalWorker::load(std::span<const step::NamedTensor> state) {
  if (!duties_.steps) return;
  updater_->load(state);
  updates_ = step::find_saved(state, "updates").item<std::int64_t>();
}

}  // namespace paceline::central
