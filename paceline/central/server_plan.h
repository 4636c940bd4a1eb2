// How a model is divided among servers: which range of its arena each one holds, and what a process needs to be a server or to connect to
// one.
#pragma once

#include <memory>
#include <vector>

#include "paceline/central/saved_servers.h"
#include "paceline/central/settings.h"
#include "paceline/ps/concurrent_server.h"
#include "paceline/ps/layout.h"
#include "paceline/ps/transports/service.h"
#include "paceline/step/strategy.h"

namespace paceline::central {

/// What servers know about a model and its training. Everything that it refers to outlives it.
struct ServedModel {
  const tensor::Arena& arena;
  const tensor::Arena* statistics = nullptr;  // of batch norms; null: the servers have none
  c10::Device device;
  const optim::OptimConfig& optim;
  const Clock& clock;
  const compress::CompressConfig& compress;
  std::string compression = "none";
  std::uint64_t seed = 0;
};

/// The layout of an arena, on which servers and workers must agree, with this many floats of statistics.
ps::ArenaLayout layout_of(const tensor::Arena& arena, std::int64_t statistics);

class ServerPlan {
 public:
  /// Divides the model's arena among `servers`. The settings outlive it.
  ServerPlan(const ServedModel& model, const Settings& settings, std::int64_t servers);
  /// The same for the context's module.
  ServerPlan(const step::Context& context, const Settings& settings, std::int64_t servers);

  std::size_t servers() const { return cuts_.size() - 1; }
  const std::vector<std::int64_t>& cuts() const { return cuts_; }  // range i is [cuts[i], cuts[i+1])
  step::Holders::Range range(std::size_t index) const { return {cuts_[index], cuts_[index + 1]}; }
  /// What the server of range `index` finds in a checkpoint, which outlives the answer.
  SavedServer saved(std::span<const step::NamedTensor> checkpoint, std::size_t index) const { return {checkpoint, index, cuts_}; }
  /// The whole arena as a server sees it.
  ps::Server::Setup whole() const;
  /// The server of range `index`, initialised with the module's parameters.
  std::shared_ptr<ps::ConcurrentServer> make_server(std::size_t index) const;
  /// How it serves, and how workers connect to it.
  ps::ServiceOptions service_options(std::size_t index) const;
  ps::JoinOptions join_options() const;
  /// What workers and servers must agree on.
  ps::ArenaLayout layout() const { return layout_of(model_.arena, statistics()); }
  /// How pushes between processes are compressed.
  ps::PushCompression push_compression() const;

 private:
  optim::OptimConfig optimizer() const;

  std::int64_t statistics() const { return model_.statistics ? model_.statistics->length() : 0; }

  ServedModel model_;
  const Settings& settings_;
  std::vector<std::int64_t> cuts_;
};

}  // namespace paceline::central
