#include "paceline/data_parallel/statistics.h"

#include <ATen/ATen.h>

#include "paceline/data_parallel/per_worker.h"

namespace paceline::data_parallel {
namespace {

constexpr const char* kStatistics = "workers.statistics";

}  // namespace

WorkerStatistics::WorkerStatistics(const step::Context& context, const std::string& batch_norm, const std::string& statistics)
    : context_(context), first_(statistics == "first"), synchronised_(batch_norm == "sync" && context.workers() > 1) {}

void WorkerStatistics::synchronise(step::LocalPass& pass) {
  if (!synchronised_ || values().numel() == 0) return;
  comm_ = context_.comm().split(0, context_.rank());
  pass.synchronise_norms([this](at::Tensor& sums) { comm_->run(comm::allreduce(sums)); });
}

void WorkerStatistics::agree() {
  if (!differ()) return;
  own_ = values().clone();
  const comm::Buffer buffer = values();
  if (first_) context_.comm().run(comm::broadcast(buffer));
  else context_.comm().run(comm::allreduce(buffer, {.op = comm::ReduceOp::mean}));
}

void WorkerStatistics::resume_training() {
  if (!own_.defined()) return;
  at::Tensor(values()).copy_(own_);
  own_.reset();
}

std::vector<step::NamedTensor> WorkerStatistics::save() {
  if (!differ()) return {};
  return {own_row(context_.comm(), kStatistics, own())};
}

// A checkpoint of another number of workers, or of synchronised norms, has what was agreed on, in the module: good for all.
void WorkerStatistics::load(std::span<const step::NamedTensor> state) {
  const auto shape = step::saved_shape(state, kStatistics);
  if (!differ() || !shape || shape->at(0) != context_.workers()) return;
  at::Tensor mine = values();
  take_row(context_.comm(), state, kStatistics, mine);
}

}  // namespace paceline::data_parallel
