#include "paceline/central/server_plan.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "paceline/central/server_tensors.h"
#include "paceline/ps/rule.h"
#include "paceline/step/momentum.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/recorded.h"

namespace paceline::central {
namespace {

/// Memory on the module's device.
ps::Allocate allocate_on(const c10::Device& device) {
  return [device](std::int64_t count) {
    const at::Tensor memory =
        tensor::allocate_pages(std::max<std::int64_t>(count, 1), at::TensorOptions().dtype(at::kFloat).device(device));
    tensor::synchronize(device);  // the caller's stream fills it with zeros, and the server's stream does not wait for that one
    return std::shared_ptr<float[]>(memory.data_ptr<float>(), [memory](float*) {});  // the pointer keeps the tensor alive
  };
}

}  // namespace

ServerPlan::ServerPlan(const step::Context& context, const Settings& settings, std::int64_t servers)
    : ServerPlan(ServedModel{.arena = context.model.arena(),
                             .statistics = &context.model.statistics(),
                             .device = context.model.device(),
                             .optim = context.optim,
                             .clock = context.clock,
                             .compress = context.compress,
                             .compression = context.compression,
                             .seed = context.seed},
                 settings, servers) {}

ServerPlan::ServerPlan(const ServedModel& model, const Settings& settings, std::int64_t servers) : model_(model), settings_(settings) {
  const ps::Server::Setup setup = whole();
  const auto made = optim::make_optimizer(ps::server_optimizer(settings.ps, optimizer()));
  const bool whole_tensors = ps::make_rule({settings.ps, optimizer(), settings.workers})->needs().whole_tensors;
  cuts_ = ps::cut_ranges(setup.segments, setup.length, static_cast<int>(servers), made->elementwise() && !whole_tensors);
}

optim::OptimConfig ServerPlan::optimizer() const { return step::optimizer_behind(model_.compression, model_.optim); }

ps::Server::Setup ServerPlan::whole() const {
  const tensor::Arena& arena = model_.arena;
  ps::Server::Setup setup;
  for (const tensor::Entry& entry : arena.entries()) setup.segments.push_back({entry.offset, entry.count, entry.decay});
  setup.length = setup.end = arena.length();
  setup.statistics = statistics();
  setup.workers = settings_.workers;
  setup.seed = model_.seed;
  const c10::Device& device = model_.device;
  setup.allocate = allocate_on(device);
  setup.place = {.cuda = device.is_cuda(), .stream = tensor::current_stream(device)};
  return setup;
}

std::shared_ptr<ps::ConcurrentServer> ServerPlan::make_server(std::size_t index) const {
  ps::Server::Setup setup = whole();
  setup.begin = cuts_[index], setup.end = cuts_[index + 1];
  if (index > 0) setup.statistics = 0;  // the first server has them
  setup.keeps_previous = cuts_.size() > 2 && settings_.cluster.max_restarts > 0 && !settings_.asynchronous();
  auto server = std::make_unique<ps::Server>(settings_.ps, optimizer(), setup);
  const ServerTensors tensors(*server, model_.device);
  tensors.parameters().copy_(model_.arena.parameters().narrow(0, setup.begin, server->length()));
  if (setup.statistics > 0) tensors.statistics().copy_(model_.statistics->parameters());
  const Nanoseconds deadline = settings_.ps.deadline();
  const ps::ConcurrentServer::Limits limits{.wait = deadline, .silence = deadline, .started_again = settings_.cluster.max_restarts > 0};
  return std::make_shared<ps::ConcurrentServer>(std::move(server), limits, model_.clock);
}

ps::PushCompression ServerPlan::push_compression() const {
  return {.name = model_.compression == "none" ? "" : model_.compression,
          .settings = model_.compress,
          .seed = model_.seed,
          .momentum = model_.optim.momentum,
          .workers = settings_.workers};
}

ps::ServiceOptions ServerPlan::service_options(std::size_t index) const {
  ps::ServiceOptions options;
  options.begin = cuts_[index], options.end = cuts_[index + 1];
  options.security = ps::security_of(settings_.ps, settings_.cluster);
  options.compression = push_compression();
  options.terms = settings_.terms;
  options.durable = settings_.ps.replica && !settings_.cluster.ranks;
  return options;
}

ps::JoinOptions ServerPlan::join_options() const {
  return {.worker = settings_.cluster.index,
          .security = ps::security_of(settings_.ps, settings_.cluster),
          .compression = push_compression(),
          .terms = settings_.terms,
          .deadline = settings_.ps.patience(),
          .patience = settings_.ps.patience()};
}

ps::ArenaLayout layout_of(const tensor::Arena& arena, std::int64_t statistics) {
  ps::ArenaLayout layout;
  for (const tensor::Entry& entry : arena.entries())
    layout.entries.push_back({entry.name, entry.shape, entry.offset, entry.count, entry.decay});
  layout.length = arena.length();
  layout.statistics = statistics;
  return layout;
}

}  // namespace paceline::central
