#include "paceline/strategies/statistics.h"

#include <ATen/ATen.h>

#include "paceline/strategies/exchange.h"
#include "paceline/strategies/per_worker.h"

namespace paceline::strategies {
namespace {

constexpr const char* kStatistics = "workers.statistics";

}  // namespace

WorkerStatistics::WorkerStatistics(const Context& context, const StrategyConfig& config)
    : context_(context), first_(config.statistics == "first"), synchronised_(config.batch_norm == "sync" && context.workers() > 1) {}

void WorkerStatistics::synchronise(LocalPass& pass) {
  if (!synchronised_ || values().numel() == 0) return;
  comm_ = context_.comm.split(0, context_.rank());
  pass.synchronise_norms([this](at::Tensor& sums) { comm_->run(comm::allreduce(buffer_of(sums, 0, sums.numel()))); });
}

void WorkerStatistics::agree() {
  if (!differ()) return;
  own_ = values().clone();
  const comm::Buffer buffer = buffer_of(values(), 0, values().numel());
  if (first_) context_.comm.run(comm::broadcast(buffer));
  else context_.comm.run(comm::allreduce(buffer, {.op = comm::ReduceOp::mean}));
}

void WorkerStatistics::resume_training() {
  if (!own_.defined()) return;
  at::Tensor(values()).copy_(own_);
  own_.reset();
}

std::vector<NamedTensor> WorkerStatistics::save() {
  if (!differ()) return {};
  return {{kStatistics, gather_rows(context_.comm, own())}};
}

// A checkpoint of another number of workers, or of synchronised norms, has what was agreed on, in the module: good for all.
void WorkerStatistics::load(std::span<const NamedTensor> state) {
  const auto found = std::ranges::find(state, kStatistics, &NamedTensor::name);
  if (!differ() || found == state.end() || found->tensor.size(0) != context_.workers()) return;
  at::Tensor mine = values();
  take_row(context_.comm, found->tensor, mine, kStatistics);
}

}  // namespace paceline::strategies
