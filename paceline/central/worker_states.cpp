#include "paceline/central/worker_states.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/central/server_tensors.h"
#include "paceline/central/state_message.h"

namespace paceline::central {
namespace {

constexpr auto kLookForStates = std::chrono::milliseconds(20);  // how often to look for workers that have not answered

}  // namespace

bool WorkerStates::wanted(int worker) const {
  const std::lock_guard lock(mutex_);
  return asked_.contains(worker);
}

void WorkerStates::keep(int worker, std::string_view packed) {
  std::vector<step::NamedTensor> state = unpack_state(packed, fmt::format("the state of worker {}", worker));
  {
    const std::lock_guard lock(mutex_);
    if (asked_.erase(worker) == 0) return;  // not requested
    kept_[worker] = std::move(state);
  }
  changed_.notify_all();
}

void WorkerStates::gather(const std::function<std::vector<int>()>& here, const std::function<void()>& look, const Clock& clock,
                          Nanoseconds patience) {
  const std::vector<int> asked = here();
  std::unique_lock lock(mutex_);
  asked_.insert(asked.begin(), asked.end());
  for (const Nanoseconds until = clock.now() + patience; !asked_.empty();) {
    lock.unlock();
    look();
    const std::vector<int> present = here();
    lock.lock();
    std::erase_if(asked_, [&](int worker) { return std::ranges::find(present, worker) == present.end(); });
    changed_.wait_for(lock, kLookForStates, [&] { return asked_.empty(); });
    if (!asked_.empty() && clock.now() > until)
      throw PeerError(*asked_.begin(), "checkpoint", 0,
                      fmt::format("worker {} did not send its state for a checkpoint within {:.1f} s; if it needs longer, raise "
                                  "ps.deadline_s",
                                  *asked_.begin(), seconds(patience)));
  }
}

void WorkerStates::save(std::vector<step::NamedTensor>& into) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [worker, state] : kept_)
    for (const step::NamedTensor& item : state)
      into.push_back({.name = worker_prefix(static_cast<std::size_t>(worker)) + item.name, .tensor = item.tensor, .copied = true});
}

void WorkerStates::load(std::span<const step::NamedTensor> state, int workers) {
  const std::lock_guard lock(mutex_);
  kept_.clear();
  for (int worker = 0; worker < workers; ++worker)
    if (auto saved = saved_worker(state, static_cast<std::size_t>(worker)); !saved.empty()) kept_[worker] = std::move(saved);
}

}  // namespace paceline::central
