#include "paceline/central/saved_servers.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <fmt/format.h>

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

ConfigError no_matching(const std::string& name) {
  return ConfigError(fmt::format("the checkpoint has no matching '{}'; resume with the same [ps] and [optim]", name));
}

SavedServer::SavedServer(std::span<const step::NamedTensor> state, std::string prefix) : state_(state), prefixes_{std::move(prefix)} {
  const auto has = [&](const std::string& other) { return step::saved_shape(state_, other + kServerNumbers).has_value(); };
  const bool clock = prefixes_.front() == kClockPrefix;
  if (!has(prefixes_.front()) && has(clock ? server_prefix(0) : kClockPrefix))
    throw ConfigError(fmt::format("the checkpoint was written {} a virtual clock; resume with the ps.executor that wrote it",
                                  clock ? "by workers without" : "under"));
  step::find_saved(state_, name(kServerNumbers));
}

SavedServer::SavedServer(std::span<const step::NamedTensor> state, std::size_t index, const std::vector<std::int64_t>& cuts)
    : SavedServer(state, server_prefix(0)) {
  begin_ = cuts.at(index), whole_ = cuts.back();
  while (step::saved_shape(state_, server_prefix(prefixes_.size()) + kServerNumbers)) prefixes_.push_back(server_prefix(prefixes_.size()));
  same_ = prefixes_.size() == cuts.size() - 1;
  if (same_) prefixes_ = {server_prefix(index)};
}

at::Tensor SavedServer::find(const std::string& what) const { return step::saved_or_none(state_, name(what)); }

at::Tensor SavedServer::range(const std::string& what, std::int64_t count) const {
  if (same_) {
    const at::Tensor found = find(what);
    return found.defined() && found.numel() == count ? found : at::Tensor();
  }
  at::Tensor joined;
  std::int64_t first = 0;  // of the next server's values
  for (const std::string& prefix : prefixes_) {
    const at::Tensor part = step::saved_or_none(state_, prefix + what);
    if (!part.defined()) return {};
    const std::int64_t begin = std::max(first, begin_), end = std::min(first + part.numel(), begin_ + count);
    if (begin < end) {
      if (!joined.defined()) joined = at::empty({count}, part.options());
      joined.narrow(0, begin - begin_, end - begin).copy_(part.flatten().narrow(0, begin - first, end - begin));
    }
    first += part.numel();
  }
  return first == whole_ ? joined : at::Tensor();
}

std::vector<std::string> SavedServer::names(const std::string& beginning) const {
  std::vector<std::string> found;
  for (const step::NamedTensor& item : state_)
    if (item.name.starts_with(name(beginning))) found.push_back(item.name.substr(prefixes_.front().size()));
  return found;
}

bool SavedServer::gathered(std::int64_t count) const {
  return std::ranges::any_of(state_, [&](const step::NamedTensor& item) {
    const bool gradient = item.name == name("gathered") || (item.name.starts_with(name("round.")) && item.name.ends_with(".gradient"));
    return gradient && item.tensor.numel() == count;
  });
}

}  // namespace paceline::central
