// Everything in flight on a virtual clock, as tensors of a checkpoint, and back.
#include <algorithm>
#include <cmath>

#include "paceline/base/error.h"
#include "paceline/central/virtual_executor.h"
#include "paceline/tensor/host_copy.h"

namespace paceline::central {
namespace {

constexpr std::int64_t kNumbers = 13, kValues = 6;      // of a player in a checkpoint,
constexpr std::int64_t kIteration = 3;                  // one of its numbers
constexpr const char* kSkipped = "ps.workers.skipped";  // minibatches without an update; absent if there were none
constexpr const char *kMomentum = "ps.workers.momentum", *kStatistics = "ps.workers.statistics";

/// ConfigError if the shapes differ, as they do where another optimizer has other moments: copy_ alone would repeat one for all.
void copy_exactly(at::Tensor& into, const at::Tensor& saved, const char* name) {
  if (!saved.defined() || saved.sizes() != into.sizes()) throw no_matching(name);
  into.copy_(saved);
}

/// One row for each worker; a GPU has no room for all of them once more.
at::Tensor stacked_on_host(const std::vector<at::Tensor>& rows) {
  std::vector<std::int64_t> shape = {std::ssize(rows)};
  for (const std::int64_t size : rows.front().sizes()) shape.push_back(size);
  at::Tensor all = at::empty(shape, rows.front().options().device(at::kCPU));
  for (std::size_t i = 0; i < rows.size(); ++i) all[static_cast<std::int64_t>(i)].copy_(rows[i]);
  return all;
}

}  // namespace

std::vector<step::NamedTensor> VirtualExecutor::save() {
  std::vector<step::NamedTensor> state = tensors().save(kClockPrefix);
  const auto workers = std::ssize(players_);
  at::Tensor numbers = at::zeros({workers, kNumbers}, at::kLong), values = at::zeros({workers, kValues}, at::kDouble);
  at::Tensor skipped = at::zeros({workers}, at::kLong);
  std::vector<at::Tensor> gradients, batches, runnings, replicas, momenta, momenta_before;
  for (std::int64_t i = 0; i < workers; ++i) {
    Player& p = players_[static_cast<std::size_t>(i)];
    values[i][5] = p.finite;
    if (p.phase == Phase::computing) values[i][3] = p.sums.wait()[0], values[i][5] = p.sums.wait()[2];
    const auto place = std::ranges::find(ready_, static_cast<std::size_t>(i));
    const std::int64_t turn = place == ready_.end() ? -1 : place - ready_.begin();
    const EventLoop::Event& event = loop_.event(static_cast<std::size_t>(i));
    const std::int64_t row[kNumbers] = {static_cast<std::int64_t>(p.phase),
                                        event.due.count(),
                                        event.order,
                                        p.local.iteration(),
                                        p.local.since_visit(),
                                        p.times.pull.count(),
                                        p.times.forward.count(),
                                        p.times.report.count(),
                                        p.times.backward.count(),
                                        p.times.push.count(),
                                        turn,
                                        p.ahead.count(),
                                        p.targets};
    std::copy_n(row, kNumbers, numbers[i].data_ptr<std::int64_t>());
    values[i][0] = p.loss, values[i][1] = p.scale, values[i][2] = p.t_comp_s, values[i][4] = p.rate;
    const LocalWorker::Memory& memory = p.local.memory();
    gradients.push_back(memory.pushed);
    if (norms_.any()) batches.push_back(memory.statistics), runnings.push_back(memory.running);
    if (duties_.departs()) replicas.push_back(memory.parameters);
    if (memory.momentum.defined()) momenta.push_back(memory.momentum);
    if (memory.momentum_before.defined()) momenta_before.push_back(memory.momentum_before);
    skipped[i] = p.local.skipped();
  }
  // The hash includes which workers may proceed and when, since the clock decides that. Loading takes it from the server's own numbers.
  if (const std::vector<std::int64_t> waiting = server_.consistency_numbers(); !waiting.empty())
    state.push_back({"ps.consistency", at::tensor(at::ArrayRef<std::int64_t>(waiting))});
  state.push_back({"ps.workers.numbers", numbers});
  state.push_back({"ps.workers.values", values});
  state.push_back({"ps.clock", at::tensor(at::ArrayRef<std::int64_t>({loop_.now().count(), loop_.planned(), busy_.count(), iterations_}))});
  const auto keep = [&](const char* name, const std::vector<at::Tensor>& rows) {
    if (!rows.empty()) state.push_back({.name = name, .tensor = stacked_on_host(rows), .copied = true});
  };
  keep("ps.workers.gradients", gradients), keep("ps.workers.batch_statistics", batches), keep(kStatistics, runnings);
  if (skipped.any().item<bool>()) state.push_back({kSkipped, skipped});
  keep("ps.workers.replicas", replicas), keep(kMomentum, momenta);
  keep("ps.workers.momentum_before", momenta_before);
  if (apart_) state.push_back({.name = "ps.parameters", .tensor = tensor::host_copy(tensors().parameters()), .copied = true});
  return state;
}

// Other workers than those of the checkpoint: what was in flight is gone with them. Each of these begins with a pull, and with the mean of
// what they kept for themselves.
void VirtualExecutor::start_over(std::span<const step::NamedTensor> state) {
  const auto mean = [&](const char* name) {
    const at::Tensor rows = step::saved_or_none(state, name);
    return rows.defined() ? rows.to(at::kDouble).mean(0) : at::Tensor();
  };
  const at::Tensor numbers = mean("ps.workers.numbers"), skipped = mean(kSkipped), momentum = mean(kMomentum);
  const std::int64_t iteration = std::llround(numbers[kIteration].item<double>());
  const std::int64_t without_update = skipped.defined() ? std::llround(skipped.item<double>()) : 0;
  const at::Tensor running = norms_.any() ? mean(kStatistics) : at::Tensor();
  for (Player& player : players_) {
    LocalWorker::Memory& memory = player.local.memory();
    player.local.resume_at(iteration, /*since_visit=*/0, without_update, /*finite=*/true);
    if (duties_.departs()) memory.parameters.copy_(tensors().parameters());  // replicas pull only once
    if (memory.momentum.defined()) copy_exactly(memory.momentum, momentum, kMomentum);
    if (running.defined()) copy_exactly(memory.running, running, kStatistics);
  }
}

void VirtualExecutor::load(std::span<const step::NamedTensor> state) {
  const SavedServer server(state, kClockPrefix);
  const at::Tensor numbers = step::find_saved(state, "ps.workers.numbers"), values = step::find_saved(state, "ps.workers.values");
  if (numbers.size(1) != kNumbers || values.size(1) != kValues)
    throw ConfigError("the state of the virtual clock was written by another version of Paceline; resume with that version");
  const bool same_workers = numbers.size(0) == std::ssize(players_);
  tensors().load(server, /*progress=*/same_workers);
  if (apart_) tensors().parameters().copy_(step::find_saved(state, "ps.parameters"));
  const at::Tensor clock = step::find_saved(state, "ps.clock");
  busy_ = Nanoseconds(clock[2].item<std::int64_t>()), iterations_ = clock[3].item<std::int64_t>();
  const Nanoseconds now(clock[0].item<std::int64_t>());
  const std::int64_t planned = clock[1].item<std::int64_t>();
  if (!same_workers) {
    loop_.restore(now, planned, std::vector<EventLoop::Event>(players_.size()));
    return start_over(state);
  }
  const auto rows = [&](const char* name, auto member) {
    const at::Tensor saved = step::find_saved(state, name);
    for (std::size_t i = 0; i < players_.size(); ++i)
      copy_exactly(players_[i].local.memory().*member, saved[static_cast<std::int64_t>(i)], name);
  };
  rows("ps.workers.gradients", &LocalWorker::Memory::pushed);
  if (norms_.any()) rows("ps.workers.batch_statistics", &LocalWorker::Memory::statistics), rows(kStatistics, &LocalWorker::Memory::running);
  if (duties_.departs()) rows("ps.workers.replicas", &LocalWorker::Memory::parameters);
  if (players_.front().local.memory().momentum.defined()) rows(kMomentum, &LocalWorker::Memory::momentum);
  if (players_.front().local.memory().momentum_before.defined()) rows("ps.workers.momentum_before", &LocalWorker::Memory::momentum_before);
  const at::Tensor skipped = step::saved_or_none(state, kSkipped);
  std::vector<std::pair<std::int64_t, std::size_t>> turns;
  std::vector<EventLoop::Event> events;
  for (std::size_t i = 0; i < players_.size(); ++i) {
    Player& p = players_[i];
    const auto* row = numbers[static_cast<std::int64_t>(i)].data_ptr<std::int64_t>();
    p.phase = static_cast<Phase>(row[0]);
    events.push_back({Nanoseconds(row[1]), row[2], p.phase != Phase::waiting});
    p.times = {.pull = Nanoseconds(row[5]),
               .forward = Nanoseconds(row[6]),
               .report = Nanoseconds(row[7]),
               .backward = Nanoseconds(row[8]),
               .push = Nanoseconds(row[9])};
    p.loss = values[static_cast<std::int64_t>(i)][0].item<double>(), p.scale = values[static_cast<std::int64_t>(i)][1].item<float>();
    p.t_comp_s = values[static_cast<std::int64_t>(i)][2].item<double>(), p.rate = values[static_cast<std::int64_t>(i)][4].item<float>();
    p.ahead = Nanoseconds(row[11]), p.targets = row[12];
    const at::Tensor finite = values[static_cast<std::int64_t>(i)][5];
    p.finite = finite.item<double>() != 0;
    p.local.resume_at(row[3], row[4], skipped.defined() ? skipped[static_cast<std::int64_t>(i)].item<std::int64_t>() : 0, p.finite);
    p.sums.start(at::stack({values[static_cast<std::int64_t>(i)][3], at::zeros({}, at::kDouble), finite}));
    if (row[10] >= 0) turns.emplace_back(row[10], i);
  }
  loop_.restore(now, planned, std::move(events));
  std::ranges::sort(turns);
  ready_.clear();
  for (const auto& [turn, i] : turns) ready_.push_back(i);
}

}  // namespace paceline::central
