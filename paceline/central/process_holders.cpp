#include "paceline/central/process_holders.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/central/server_tensors.h"

namespace paceline::central {
namespace {

constexpr auto kLookForAnswers = std::chrono::milliseconds(20);  // how often workers are looked for that have not answered

}  // namespace

std::vector<std::string> ProcessHolders::roll_call() {
  leader_.bring_up_to_date();
  workers_ = leader_.workers_hold ? leader_.workers_here() : std::vector<int>{};
  std::ranges::sort(workers_);
  std::vector<std::string> names;
  for (std::size_t server = 1; server < leader_.servers; ++server) names.push_back(fmt::format("server {}", server));
  for (const int worker : workers_) names.push_back(fmt::format("worker {}", worker));
  answers_.assign(names.size(), std::nullopt);
  orders_.forget_answers();
  return names;
}

void ProcessHolders::add_absent_workers(std::vector<step::NamedTensor>& state) const {
  if (!leader_.workers_hold || std::ssize(workers_) >= leader_.workers) return;
  std::vector<step::NamedTensor> last;
  try {
    last = read_last_();
  } catch (const DataError& problem) {
    log::warning("the next checkpoint has no state of workers that are gone: {}", problem.what());
  }
  for (int worker = 0; worker < leader_.workers; ++worker) {
    if (std::ranges::binary_search(workers_, worker)) continue;
    const auto index = static_cast<std::size_t>(worker);
    for (step::NamedTensor& item : saved_worker(last, index))
      state.push_back({.name = worker_prefix(index) + item.name, .tensor = std::move(item.tensor), .copied = true});
  }
}

void ProcessHolders::give(std::span<const std::string> orders) {
  answers_.assign(orders.size(), std::nullopt);
  orders_.forget_answers();
  for (std::size_t i = others(); i < orders.size(); ++i)
    if (!orders[i].empty()) orders_.give(workers_[i - others()], orders[i]);
  leader_.wake_workers();
  const auto servers = orders.first(others());
  if (std::ranges::all_of(servers, &std::string::empty)) return;
  std::vector<std::string> told = leader_.observer().order(servers);
  for (std::size_t i = 0; i < told.size(); ++i)
    if (!servers[i].empty()) answers_[i] = std::move(told[i]);
}

bool ProcessHolders::all_answered() {
  const std::vector<int> here = leader_.workers_here();
  bool all = true;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    std::optional<std::string>& answer = answers_[others() + i];
    if (answer) continue;
    const bool asked = orders_.any(workers_[i]);  // before its answer is looked for, which may come now
    answer = orders_.answer(workers_[i]);
    if (!answer && asked && std::ranges::find(here, workers_[i]) == here.end()) answer = "";
    all = all && (answer || !asked);
  }
  return all;
}

std::vector<std::optional<std::string>> ProcessHolders::answers(bool wait) {
  for (const Nanoseconds until = leader_.clock.now() + leader_.patience; !all_answered() && wait; orders_.wait(kLookForAnswers)) {
    leader_.wake_workers();
    if (leader_.clock.now() < until) continue;
    const auto silent = std::ranges::find_if(workers_, [&](int worker) { return orders_.any(worker); });
    if (silent == workers_.end()) continue;  // it has just answered
    throw PeerError(*silent, "checkpoint", 0,
                    fmt::format("worker {} did not answer about its part of a checkpoint within {:.1f} s; if it needs longer, raise "
                                "ps.deadline_s",
                                *silent, seconds(leader_.patience)));
  }
  return answers_;
}

}  // namespace paceline::central
