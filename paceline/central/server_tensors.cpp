#include "paceline/central/server_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::central {
namespace {

constexpr const char* kWorkers = "ps.worker.";

}  // namespace

std::string server_prefix(std::size_t server) { return fmt::format("ps.{}.", server); }
std::string worker_prefix(std::size_t worker) { return fmt::format("{}{}.", kWorkers, worker); }

std::vector<step::NamedTensor> saved_worker(std::span<const step::NamedTensor> state, std::size_t worker) {
  const std::string prefix = worker_prefix(worker);
  std::vector<step::NamedTensor> found;
  for (const step::NamedTensor& item : state)
    if (item.name.starts_with(prefix)) found.push_back({item.name.substr(prefix.size()), item.tensor});
  return found;
}

std::vector<step::NamedTensor> saved_workers(std::span<const step::NamedTensor> state) {
  std::vector<step::NamedTensor> found;
  for (const step::NamedTensor& item : state)
    if (item.name.starts_with(kWorkers)) found.push_back(item);
  return found;
}

void check_servers(std::span<const step::NamedTensor> state, std::size_t servers) {
  step::find_saved(state, server_prefix(0) + kServerNumbers);  // a strategy without servers has none
  const auto has = [&](std::size_t server) { return step::saved_shape(state, server_prefix(server) + kServerNumbers).has_value(); };
  if (!has(servers - 1) || has(servers))
    throw ConfigError("the checkpoint was written with another number of servers; resume with the same ps.servers and ps.executor");
}

at::Tensor ServerTensors::tensor(float* data, std::int64_t count) const {
  return at::from_blob(data, {count}, at::TensorOptions().dtype(at::kFloat).device(device_));
}

std::vector<step::NamedTensor> ServerTensors::save(const std::string& prefix) const {
  std::vector<step::NamedTensor> state = views(prefix);
  for (step::NamedTensor& item : state)
    if (!std::exchange(item.copied, true)) item.tensor = item.tensor.clone();
  return state;
}

std::vector<step::NamedTensor> ServerTensors::views(const std::string& prefix) const {
  std::vector<step::NamedTensor> state;
  const auto add_numbers = [&](const char* name, at::ArrayRef<std::int64_t> numbers) {
    state.push_back({.name = prefix + name, .tensor = at::tensor(numbers), .copied = true});
  };
  for (const ps::Server::Array& array : server_.arrays()) state.push_back({prefix + array.name, tensor(array.data, array.count)});
  add_numbers(kServerVersion, server_.version());
  add_numbers(kServerNumbers, server_.numbers());
  if (const std::vector<std::int64_t> ledger = server_.ledger(); !ledger.empty()) add_numbers(kServerLedger, ledger);
  for (const ps::UpdateRule::State& row : server_.rule_state())
    state.push_back({.name = prefix + row.name, .tensor = at::tensor(at::ArrayRef<float>(row.values)), .copied = true});
  return state;
}

void ServerTensors::load(std::span<const step::NamedTensor> state, const std::string& prefix) const {
  const at::Tensor numbers = step::find_saved(state, prefix + kServerNumbers);
  std::vector<ps::UpdateRule::State> rule_state;
  for (ps::UpdateRule::State& row : server_.rule_state()) {
    const at::Tensor saved = step::saved_or_none(state, prefix + row.name);
    if (!saved.defined()) continue;
    const at::Tensor values = saved.contiguous();
    row.values.assign(values.data_ptr<float>(), values.data_ptr<float>() + values.numel());
    rule_state.push_back(std::move(row));
  }
  const auto copy_arrays = [&](bool really) {
    for (const ps::Server::Array& array : server_.arrays()) {
      const auto found = std::ranges::find(state, prefix + array.name, &step::NamedTensor::name);
      const bool of_worker = array.name.starts_with("pulled.") || array.name.starts_with("kept.") || array.name.starts_with("answer.");
      if (found == state.end() && of_worker) continue;                     // a worker that did not exist then
      if (found == state.end() && array.name == "bookkeeping.previous") {  // written where no worker is restarted
        if (really) tensor(array.data, array.count).copy_(parameters());
        continue;
      }
      if (found == state.end() || found->tensor.numel() != array.count)
        throw ConfigError(
            fmt::format("the checkpoint has no matching '{}{}'; resume with the same [ps], [optim] and workers", prefix, array.name));
      if (really) tensor(array.data, array.count).copy_(found->tensor);
    }
  };
  copy_arrays(false);  // a first pass that only checks: nothing changes before everything is known to fit
  const auto gathered = std::ranges::find_if(state, [&](const step::NamedTensor& item) {
    return item.name == prefix + "gathered" || (item.name.starts_with(prefix + "round.") && item.name.ends_with(".gradient"));
  });
  server_.load({numbers.data_ptr<std::int64_t>(), static_cast<std::size_t>(numbers.numel())}, rule_state,
               gathered != state.end() && gathered->tensor.numel() == server_.length());
  const auto ledger = std::ranges::find(state, prefix + kServerLedger, &step::NamedTensor::name);
  if (ledger != state.end())
    server_.load_ledger({ledger->tensor.data_ptr<std::int64_t>(), static_cast<std::size_t>(ledger->tensor.numel())});
  copy_arrays(true);
}

void ServerTensors::load_anew(std::span<const step::NamedTensor> state, const std::string& prefix) const {
  load(state, prefix);
  if (server_.rule().period() > 1) server_.begin_anew();  // a worker's local steps since its last visit are not saved
}

observe::Served served_by(const ps::Server& server) {
  observe::Served served;
  served.updates = server.version(), served.dropped = server.dropped(), served.refused = server.refused();
  double sum = 0;
  for (const auto& [staleness, count] : server.staleness()) {
    served.staleness.emplace_back(staleness, count);
    served.gradients += count, sum += static_cast<double>(staleness * count);
  }
  served.mean_staleness = served.gradients > 0 ? sum / static_cast<double>(served.gradients) : 0;
  if (const ps::PredictorRecord* record = server.rule().predictions()) {
    const double reports = std::max<double>(1, static_cast<double>(record->actual_loss.size()));
    served.loss_predictor_ms = 1e3 * record->loss_seconds / reports, served.step_predictor_ms = 1e3 * record->step_seconds / reports;
    served.predicted_loss = record->predicted_loss, served.actual_loss = record->actual_loss;
    served.predicted_steps = record->predicted_steps, served.actual_steps = record->actual_steps;
    served.worker = record->worker, served.steps_ahead = record->steps_ahead;
    served.delay_loss = record->delay_loss, served.scale = record->scale;
  }
  return served;
}

}  // namespace paceline::central
