#include "paceline/data_parallel/norm_statistics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "paceline/data_parallel/per_worker.h"
#include "paceline/step/boxes.h"

namespace paceline::data_parallel {
namespace {

constexpr const char* kStatistics = "workers.statistics";

std::int64_t elements_of(const tensor::Listed& listed) {
  return std::accumulate(listed.shape.begin(), listed.shape.end(), std::int64_t{1}, std::multiplies());
}

/// Whether the rank has every entry of the network, and no slice of one.
bool is_whole(const tensor::Arena& arena) {
  return std::ranges::all_of(arena.listing(),
                             [&](const tensor::Listed& listed) { return listed.entry && !arena.entries()[*listed.entry].slice; });
}

}  // namespace

WorkerStatistics::WorkerStatistics(const step::Context& context, const std::string& batch_norm, const std::string& statistics)
    : context_(context), first_(statistics == "first"), synchronised_(batch_norm == "sync" && context.workers() > 1) {}

void WorkerStatistics::synchronise(step::BatchPass& pass) {
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

/// This worker's row of a tensor [workers, length of the whole network's statistics]. `flat` has what the rank holds: the whole row or, if
/// the pipeline or tensor axis divides the network, parts of it.
std::vector<step::NamedTensor> WorkerStatistics::rows(const at::Tensor& flat) const {
  const tensor::Arena& arena = context_.model.statistics();
  if (is_whole(arena)) return {own_row(context_.comm(), kStatistics, flat)};
  constexpr std::int64_t kAlignment = tensor::Arena::kAlignment;
  std::vector<std::int64_t> places = {0};  // of the network's statistics in the row
  for (const tensor::Listed& listed : arena.listing())
    places.push_back(places.back() + (elements_of(listed) + kAlignment - 1) / kAlignment * kAlignment);
  std::vector<step::NamedTensor> result;
  const auto add = [&](std::int64_t place, const at::Tensor& values) {
    const std::vector<std::int64_t> first = {context_.rank(), place}, whole = {context_.workers(), places.back()};
    if (values.numel() > 0) result.push_back({kStatistics, values.unsqueeze(0), step::Box{first, whole}});
  };
  for (std::size_t i = 0; const tensor::Listed& listed : arena.listing()) {
    const std::int64_t place = places[i++], end = place + elements_of(listed);
    if (!listed.entry) continue;
    const tensor::Entry& entry = arena.entries()[*listed.entry];
    std::int64_t from = entry.offset;  // a slice is one of a norm's channels, which have a single dimension
    for (const tensor::Slice::Run& run : entry.slice ? entry.slice->runs : std::vector<tensor::Slice::Run>{{0, entry.count}}) {
      add(place + run.first, flat.narrow(0, from, run.count));
      from += run.count;
    }
    add(end, at::zeros({places[i] - end}, flat.options()));  // the padding
  }
  return result;
}

std::vector<step::NamedTensor> WorkerStatistics::save() {
  if (!differ()) return {};
  return rows(own());
}

// A checkpoint of another number of workers, or of synchronised norms, has only the agreed statistics, in the module, which are valid for
// all workers.
void WorkerStatistics::load(std::span<const step::NamedTensor> state) {
  if (!differ()) return;
  const std::vector<step::NamedTensor> mine = rows(values());
  if (!mine.empty() && step::saved_shape(state, kStatistics) == mine.front().shape()) step::fill(mine, state);
}

}  // namespace paceline::data_parallel
