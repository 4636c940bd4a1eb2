#include "paceline/train/remote_processes.h"

#include <ATen/ATen.h>

#include <thread>

#include <fmt/format.h>

#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/central/central_worker.h"
#include "paceline/central/server_plan.h"
#include "paceline/central/server_snapshots.h"
#include "paceline/central/server_tensors.h"
#include "paceline/comm/engine.h"
#include "paceline/ps/transports/service.h"
#include "paceline/step/boxes.h"
#include "paceline/train/checkpoint.h"
#include "paceline/train/feed.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/part_holder.h"
#include "paceline/train/weights.h"

namespace paceline::train {
namespace {

constexpr auto kLook = std::chrono::milliseconds(50);  // how often a server checks whether it should end, or a snapshot is due

Recipe checked(Recipe recipe) {
  validate(recipe);
  return recipe;
}

void load_model(nn::Model& module, const Checkpoint& checkpoint) {
  std::vector<NamedTensor> model;
  for (const NamedTensor& item : checkpoint.tensors)
    if (item.name.starts_with(kModelPrefix)) model.push_back(item);
  restore(model, model_tensors(module), "the checkpoint");
  module.refresh();
}

/// What such a process has in common with server 0's Trainer.
struct Remote {
  /// `resumes`: the module's weights come from a checkpoint, and model.weights is not read.
  Remote(const Recipe& given, const Workload& workload, const ps::Cluster& cluster, bool resumes)
      : recipe(checked(recipe_for(given, cluster))),
        // It is unknown how many of the other processes are on this host: one thread, unless the launcher, which knows, sets a number.
        threads(recipe.train.threads > 0 ? static_cast<int>(recipe.train.threads) : usual_threads(1)),
        network(network_of(recipe, workload)),
        datasets(make_datasets(recipe, workload)),
        module(make_module(workload, resumes)),
        context(context_of(recipe, workload, *module, /*stages=*/{}, mesh, bus, clock)),
        settings(servers_of(recipe, cluster, threads)),
        plan(context, settings, std::ssize(cluster.servers)) {
    ensure_memory_for(threads);
  }
  Remote(const Remote&) = delete;  // its members refer to each other
  Remote& operator=(const Remote&) = delete;

  std::shared_ptr<nn::Model> make_module(const Workload& workload, bool resumes) const {
    configure_libtorch(recipe, threads);
    return make_model(recipe, workload, datasets.training->info(), mesh, resumes ? "" : recipe.model.weights, clock).model;
  }

  // In order of construction: each needs those before it.
  Recipe recipe;
  int threads;
  std::string network;
  Datasets datasets;
  std::unique_ptr<comm::Communicator> alone = std::move(comm::local_group(1).front());
  comm::Mesh mesh{*alone};
  observe::Bus bus;
  SteadyClock clock;
  std::shared_ptr<nn::Model> module;
  step::Context context;
  central::Settings settings;
  central::ServerPlan plan;
};

}  // namespace

Recipe recipe_for(const Recipe& given, const ps::Cluster& cluster) {
  Recipe recipe = given;
  if (cluster.role == ps::Cluster::Role::none) return recipe;
  if (!recipe.servers())
    throw ConfigError(
        fmt::format("strategy '{}' has no parameter server; use one that has, for example strategy.name=asgd", recipe.strategy.name));
  if (!recipe.ps.leaves_executor_open() && !recipe.ps.by_processes())
    throw ConfigError(
        fmt::format("ps.executor={} runs all workers in one process, but a launcher started several; leave ps.executor out, or start the "
                    "program without a launcher",
                    recipe.ps.executor));
  if (recipe.train.device != "auto" && recipe.train.device != "cpu")
    throw ConfigError(
        fmt::format("train.device={}: servers and workers of several processes keep parameters in host memory and compute there; leave "
                    "train.device out, or start the program without a launcher",
                    recipe.train.device));
  recipe.train.device = "cpu";
  recipe.ps.executor = ps::kProcesses;
  if (recipe.parallel.workers == 0) recipe.parallel.workers = std::max(cluster.workers, 1);
  recipe.ps.servers = std::ssize(cluster.servers);
  // Workers would wait forever for a server that is several rounds behind the others, so it must not lose any.
  if (cluster.max_restarts > 0 && recipe.ps.servers > 1 && !recipe.servers()->asynchronous() && recipe.ps.transport == "grpc" &&
      recipe.ps.snapshot_s > 0)
    recipe.ps.replica = true;
  return recipe;
}

std::int64_t run_remote_worker(const Recipe& given, const Workload& workload, const ps::Cluster& cluster, const std::atomic<bool>& stop,
                               const Checkpoint* resumed) {
  Remote remote(given, workload, cluster, resumed != nullptr);
  if (resumed) load_model(*remote.module, *resumed);
  const Recipe& recipe = remote.recipe;
  auto connected = ps::join(cluster, remote.plan.layout(), remote.plan.join_options());
  ps::RemoteClient& servers = *connected;
  central::CentralWorker worker(remote.context, remote.settings, std::move(connected), servers.worker());
  if (resumed && cluster.restarts == 0)
    if (const auto own = central::saved_worker(resumed->tensors, static_cast<std::size_t>(servers.worker())); !own.empty())
      worker.load(own);
  const std::string prefix = central::worker_prefix(static_cast<std::size_t>(servers.worker()));
  PartHolder holder([&](const PartHolder::Look& look) {
    std::vector<NamedTensor> own = worker.save();
    for (NamedTensor& item : own) item.name = prefix + item.name;
    look(own);
  });
  servers.on_order([&](std::string_view order) { return holder.carry_out(order); });

  const data::Dataset& dataset = *remote.datasets.training;
  const auto reading = loader_options(recipe, data::Split::train, *remote.alone, minibatch_of(recipe, dataset.size(), 0));
  data::Sampler sampler = data::make_sampler(dataset, reading);
  data::Batch samples;
  std::int64_t epoch = -1, finished = 0;
  // A worker that was started with the servers stays until server 0 has no more work: what is in flight belongs in its last checkpoint.
  while (!stop || !cluster.job.empty() || cluster.ranks) {
    const std::optional<ps::Task> task = servers.next(worker.visits());
    if (!task) break;
    if (task->epoch != epoch) sampler.start(task->epoch, minibatch_of(recipe, dataset.size(), task->epoch));
    epoch = task->epoch;
    data::fill_batch(dataset, reading, sampler, epoch, task->batch, samples);
    const step::Batch batch = as_tensors(samples, dataset.info());
    const at::Tensor sums = worker.minibatch(batch, {.step = task->step, .rate = task->rate});
    servers.done(*task, sums[0].item<double>(), sums[1].item<double>(), batch.targets.numel());
    ++finished;
  }
  return finished;
}

void run_remote_server(const Recipe& given, const Workload& workload, const ps::Cluster& cluster, const std::atomic<bool>& stop,
                       const Checkpoint* resumed) {
  Remote remote(given, workload, cluster, resumed != nullptr);
  const auto index = static_cast<std::size_t>(cluster.index);
  const auto concurrent = remote.plan.make_server(index);
  const step::Holders::Range range = remote.plan.range(index);
  const auto parameters = [&](const at::Tensor& values) { return served_tensors(remote.module->arena(), range, values); };
  if (resumed)
    concurrent->with(
        [&](ps::Server& own) { step::fill(parameters(central::ServerTensors(own, at::kCPU).parameters()), resumed->tensors); });
  const central::ServerSnapshots::Files files{
      .write =
          [&](const std::filesystem::path& file, const std::vector<NamedTensor>& tensors) {
            write_checkpoint(file, {.position = {}, .recipe = {}, .network = remote.network, .tensors = tensors});
          },
      .read = [](const std::filesystem::path& file) { return read_checkpoint(file).tensors; }};
  const auto saved = resumed ? std::optional(remote.plan.saved(resumed->tensors, index)) : std::nullopt;
  central::ServerSnapshots snapshots(remote.settings, *concurrent, remote.clock, files, saved ? &*saved : nullptr);
  ps::ServiceOptions options = remote.plan.service_options(index);
  const std::string prefix = central::server_prefix(index);
  PartHolder holder([&](const PartHolder::Look& look) {
    concurrent->with([&](ps::Server& own) {
      const central::ServerTensors tensors(own, at::kCPU);
      std::vector<NamedTensor> state = parameters(tensors.shown());
      for (NamedTensor& item : tensors.views(prefix)) state.push_back(std::move(item));
      look(state);
    });
  });
  options.carry_out = [&](std::string_view order) { return holder.carry_out(order); };
  if (saved && cluster.restarts == 0) options.resumed = saved->version();
  const auto server = ps::serve(cluster, concurrent, remote.plan.layout(), options);
  // When told to stop, it stays for workers that finish what is in flight, and for server 0's last read.
  const SteadyClock clock;
  for (std::optional<Nanoseconds> until; !server->deserted(); snapshots.write_if_due()) {
    if (stop && !until) until = clock.now() + remote.settings.ps.patience();
    if (until && (server->workers().empty() || clock.now() > *until)) break;
    std::this_thread::sleep_for(kLook);
  }
  const observe::Served served = concurrent->with([](ps::Server& own) { return central::served_by(own); });
  log::info("server {} made {} updates with {} gradients", cluster.index, served.updates, served.gradients);
}

}  // namespace paceline::train
