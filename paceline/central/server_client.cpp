#include "paceline/central/server_client.h"

#include <ATen/ATen.h>

#include <cmath>
#include <mutex>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "paceline/base/config.h"
#include "paceline/base/error.h"
#include "paceline/central/local_worker.h"
#include "paceline/central/server_plan.h"
#include "paceline/central/server_tensors.h"
#include "paceline/ps/client.h"
#include "paceline/tensor/arena.h"

namespace paceline {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);  // how often a server checks whether all workers have left

/// The module's parameters in an arena, so that servers can hold them.
tensor::Arena adopt_served(torch::nn::Module& module) {
  tensor::Arena arena = tensor::adopt(module);
  const at::Tensor& parameters = arena.parameters();
  if (!parameters.is_cpu() || parameters.scalar_type() != at::kFloat)
    throw ConfigError(
        fmt::format("a parameter server needs float parameters in host memory, but these are {} on {}; call module->to(torch::kCPU, "
                    "torch::kFloat) first",
                    c10::toString(parameters.scalar_type()), parameters.device().str()));
  return arena;
}

/// What processes must agree on before they train together.
std::string terms_of(const ServerOptions& options) {
  return fmt::format("ps.rule={}\nps.consistency={}\nps.optimizer={}\nps.period={}\noptim.name={}\ncompression={}\n", options.ps.rule,
                     options.ps.consistency, options.ps.optimizer, options.ps.period, options.optim.name, options.compression);
}

ServerOptions checked_options(ServerOptions options) {
  Config config;
  config.bind("ps", "", options.ps);
  config.bind("optim", "", options.optim);
  config.bind("compress", "", options.compress);
  config.check();
  if (!options.ps.speeds.empty()) throw ConfigError("ServerClient: ps.speeds is for workers that Paceline itself runs; leave it out");
  return options;
}

central::Settings settings_of(const ServerOptions& options, const char* executor, int workers, const ps::Cluster& cluster) {
  central::Settings settings;
  settings.ps = options.ps, settings.ps.executor = executor;
  settings.cluster = cluster, settings.terms = terms_of(options), settings.workers = workers;
  if (cluster.role != ps::Cluster::Role::none) settings.ps.servers = std::ssize(cluster.servers);
  settings.validate(options.optim, options.compression);
  return settings;
}

central::Duties duties_of(const central::Settings& settings, const optim::OptimConfig& optim) {
  return {settings.ps, *ps::make_rule({settings.ps, optim, settings.workers})};
}

const ps::Cluster& as_worker(const ps::Cluster& cluster) {
  if (cluster.role != ps::Cluster::Role::worker)
    throw ConfigError(
        "ServerClient: this process is not a worker of a parameter server; start it with `paceline run --servers 1 --workers 4 -- program` "
        "and "
        "call paceline::serve() first, or give it a ParameterServer of this process");
  return cluster;
}

}  // namespace

namespace central {

/// A module, and the plan of the servers that hold it or that it visits.
struct ServedModule {
  ServedModule(torch::nn::Module& module, const ServerOptions& given, const char* executor, int workers, const ps::Cluster& cluster)
      : arena(adopt_served(module)),
        options(checked_options(given)),
        settings(settings_of(options, executor, workers, cluster)),
        plan({.arena = arena,
              .device = arena.parameters().device(),
              .optim = options.optim,
              .clock = clock,
              .compress = options.compress,
              .compression = options.compression,
              .seed = options.seed},
             settings, settings.ps.servers) {}
  ServedModule(const ServedModule&) = delete;  // the plan refers to the rest
  ServedModule& operator=(const ServedModule&) = delete;

  tensor::Arena arena;
  ServerOptions options;
  SteadyClock clock;
  Settings settings;
  ServerPlan plan;
};

}  // namespace central

struct ParameterServer::State : central::ServedModule {
  State(torch::nn::Module& module, int workers, const ServerOptions& given) : ServedModule(module, given, ps::kThreads, workers, {}) {
    for (std::size_t i = 0; i < plan.servers(); ++i) servers.push_back(plan.make_server(i));
  }
  std::vector<std::shared_ptr<ps::ConcurrentServer>> servers;
};

ParameterServer::ParameterServer(torch::nn::Module& module, int workers, const ServerOptions& options)
    : state_(std::make_unique<State>(module, workers, options)) {}
ParameterServer::~ParameterServer() = default;

void ParameterServer::show() {
  state_->arena.take_back();
  const at::NoGradGuard no_grad;
  at::Tensor parameters = state_->arena.parameters();
  for (std::size_t i = 0; i < state_->servers.size(); ++i)
    state_->servers[i]->with([&](ps::Server& server) {
      parameters.narrow(0, state_->plan.cuts()[i], server.length()).copy_(central::ServerTensors(server, parameters.device()).shown());
    });
}

std::int64_t ParameterServer::updates() const {
  return state_->servers[0]->with([](const ps::Server& server) { return server.version(); });
}

struct ServerClient::State {
  State(torch::nn::Module& module, ParameterServer& server, int index)
      : arena(adopt_served(module)),
        duties(duties_of(server.state_->settings, server.state_->options.optim)),
        local(duties, nullptr, arena, nullptr, false),
        worker(index) {
    const ParameterServer::State& served = *server.state_;
    if (index < 0 || index >= served.settings.workers)
      throw ConfigError(fmt::format("ServerClient: worker {} of {}; they are numbered from 0", index, served.settings.workers));
    const ps::ArenaLayout mine = central::layout_of(arena, 0), theirs = served.plan.layout();
    if (mine != theirs)
      throw ConfigError(fmt::format("ServerClient: worker {}'s module differs from the server's: {}", index, difference(mine, theirs)));
    client = ps::make_in_process_client(served.servers, served.plan.cuts(), index);
    pull(0);
  }

  State(torch::nn::Module& module, const ServerOptions& options, const ps::Cluster& cluster)
      : own(std::make_unique<central::ServedModule>(module, options, ps::kProcesses, std::max(cluster.workers, 1), as_worker(cluster))),
        arena(own->arena),
        duties(duties_of(own->settings, own->options.optim)),
        local(duties, nullptr, arena, nullptr, false) {
    auto joined = ps::join(cluster, own->plan.layout(), own->plan.join_options());
    worker = joined->worker();
    client = std::move(joined);
    pull(0);
  }

  void pull(float rate) {
    client->pull(local.needs_pull() ? arena.parameters().data_ptr<float>() : nullptr, rate);
    local.pulled();
  }

  void step(float rate, std::optional<double> loss) {
    if (duties.advised && !loss)
      throw ConfigError("ServerClient: the rule needs the loss of the minibatch, but step() was given none; call step(rate, loss)");
    arena.take_back();
    const at::NoGradGuard no_grad;
    if (!(duties.optimizes() ? local.take_step() : local.take_gradient(rate))) return;
    ps::Advice advice;
    if (loss) advice = client->report({.loss = *loss}, nullptr);
    client->push(local.sent().data_ptr<float>(), {.rate = rate, .scale = static_cast<float>(advice.scale), .loss = loss.value_or(NAN)});
    local.pushed();
    pull(rate);
  }

  std::unique_ptr<central::ServedModule> own;  // if the servers are other processes
  tensor::Arena arena;
  central::Duties duties;
  central::LocalWorker local;  // whose steps the optimizer of the user's loop makes
  int worker = 0;
  std::unique_ptr<ps::Client> client;
};

ServerClient::ServerClient(torch::nn::Module& module, ParameterServer& server, int worker)
    : state_(std::make_unique<State>(module, server, worker)) {}
ServerClient::ServerClient(torch::nn::Module& module, const ServerOptions& options, const ps::Cluster& cluster)
    : state_(std::make_unique<State>(module, options, cluster)) {}
ServerClient::~ServerClient() = default;

void ServerClient::step(double rate, std::optional<double> loss) { state_->step(static_cast<float>(rate), loss); }
int ServerClient::worker() const { return state_->worker; }

bool serve(torch::nn::Module& module, const ServerOptions& options, const ps::Cluster& cluster) {
  if (cluster.role != ps::Cluster::Role::server) return false;
  const central::ServedModule served(module, options, ps::kProcesses, std::max(cluster.workers, 1), cluster);
  const auto index = static_cast<std::size_t>(cluster.index);
  const auto concurrent = served.plan.make_server(index);
  std::mutex mutex;
  std::set<int> came;
  std::exception_ptr problem;
  concurrent->watch([&](ps::Journal::Kind kind, int worker) {
    const std::lock_guard lock(mutex);
    if (kind == ps::Journal::Kind::joined) came.insert(worker);
  });
  ps::ServiceOptions serving = served.plan.service_options(index);
  serving.failed = [&](const std::exception_ptr& why) {
    const std::lock_guard lock(mutex);
    problem = why;
  };
  const auto service = ps::serve(cluster, concurrent, served.plan.layout(), serving);
  for (Nanoseconds seen = served.clock.now(); !service->deserted(); std::this_thread::sleep_for(kLook)) {
    const bool anybody = !service->workers().empty();
    const std::lock_guard lock(mutex);
    if (problem) std::rethrow_exception(problem);
    if (anybody) seen = served.clock.now();
    else if (std::ssize(came) >= std::max(cluster.workers, 1)) break;
    else if (served.clock.now() - seen > served.settings.ps.patience())
      throw PeerError(-1, "serve", std::ssize(came),
                      fmt::format("{} of {} workers joined server {} ({}), and none is left; start them, or raise ps.deadline_s",
                                  came.size(), std::max(cluster.workers, 1), index, cluster.servers[index]));
  }
  return true;
}

}  // namespace paceline
