#include "paceline/central/server_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/tensor/host_copy.h"

namespace paceline::central {
namespace {

/// Of a worker, which may have been absent.
bool of_worker(const std::string& array) {
  return array.starts_with("pulled.") || array.starts_with("kept.") || array.starts_with("answer.");
}

}  // namespace

at::Tensor ServerTensors::tensor(float* data, std::int64_t count) const {
  return at::from_blob(data, {count}, at::TensorOptions().dtype(at::kFloat).device(device_));
}

std::vector<step::NamedTensor> ServerTensors::save(const std::string& prefix) const {
  std::vector<step::NamedTensor> state = views(prefix);
  for (step::NamedTensor& item : state)
    if (!std::exchange(item.copied, true)) item.tensor = tensor::host_copy(item.tensor);
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

at::Tensor ServerTensors::saved_array(const SavedServer& saved, const ps::Server::Array& array) const {
  const at::Tensor found = array.per_parameter ? saved.range(array.name, array.count) : saved.find(array.name);
  if (found.defined() && found.numel() == array.count) return found;
  if (found.defined() || !of_worker(array.name)) {
    if (array.name == "bookkeeping.previous") return parameters();  // written where no worker is restarted
    throw no_matching(saved.name(array.name));
  }
  return {};
}

void ServerTensors::load(const SavedServer& saved, bool progress) const {
  const at::Tensor numbers = saved.find(kServerNumbers);
  std::vector<ps::UpdateRule::State> rule_state;
  for (ps::UpdateRule::State& row : server_.rule_state()) {
    const at::Tensor found = saved.find(row.name);
    if (!found.defined()) continue;
    const at::Tensor values = found.contiguous();
    row.values.assign(values.data_ptr<float>(), values.data_ptr<float>() + values.numel());
    rule_state.push_back(std::move(row));
  }
  // Nothing changes before everything is known to fit.
  for (const ps::Server::Array& array : server_.arrays()) saved_array(saved, array);
  using InProgress = ps::Server::InProgress;
  server_.load({numbers.data_ptr<std::int64_t>(), static_cast<std::size_t>(numbers.numel())}, rule_state,
               !progress || !saved.same()         ? InProgress::left_out
               : saved.gathered(server_.length()) ? InProgress::present
                                                  : InProgress::missing);
  if (const at::Tensor ledger = saved.find(kServerLedger); ledger.defined())
    server_.load_ledger({ledger.data_ptr<std::int64_t>(), static_cast<std::size_t>(ledger.numel())});
  for (const ps::Server::Array& array : server_.arrays())
    if (const at::Tensor found = saved_array(saved, array); found.defined()) tensor(array.data, array.count).copy_(found);
  const auto arrays = server_.arrays();
  for (const std::string& name : saved.names(ps::Server::kKept)) {  // also of workers that this server does not have
    const bool here = std::ranges::find(arrays, name, &ps::Server::Array::name) != arrays.end();
    const at::Tensor kept = here ? at::Tensor() : saved.range(name, server_.length());
    if (kept.defined()) server_.forget_kept(kept.to(device_, at::kFloat, /*non_blocking=*/false, /*copy=*/true).data_ptr<float>());
  }
}

void ServerTensors::load_anew(const SavedServer& saved) const {
  load(saved);
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
