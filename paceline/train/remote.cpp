#include "paceline/train/remote.h"

#include <ATen/ATen.h>

#include <thread>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/comm/engine.h"
#include "paceline/ps/transports/service.h"
#include "paceline/strategies/central_worker.h"
#include "paceline/train/feed.h"
#include "paceline/train/server_snapshots.h"
#include "paceline/train/trainer.h"
#include "paceline/train/weights.h"

namespace paceline::train {
namespace {

constexpr auto kLook = std::chrono::milliseconds(50);  // how often a server looks whether it is to end, or a snapshot is due

/// What such a process shares with the Trainer of server 0: the same recipe gives the same module.
struct Remote {
  explicit Remote(const Recipe& given, const ps::Cluster& cluster) : recipe(recipe_for(given, cluster)) {
    validate(recipe);
    ps = strategies::paired(recipe.strategy.name, recipe.ps);
    const c10::Device device = tensor::parse_device(recipe.train.device);
    const int threads = recipe.train.threads > 0 ? static_cast<int>(recipe.train.threads) : 1;
    const tensor::Precision precision = tensor::parse_precision(recipe.train.precision, device);
    tensor::configure_libtorch(device, precision, threads, recipe.train.repeatable);
    datasets = make_datasets(recipe);
    nn::GraphModule::Options options;
    options.device = device, options.precision = precision, options.seed = static_cast<std::uint64_t>(recipe.train.seed);
    module = std::make_shared<nn::GraphModule>(graph_for(recipe.model, datasets.training->info()), options);
    if (!recipe.model.weights.empty()) load_weights(*module, recipe.model.weights);
    alone = std::move(comm::local_group(1).front());
    context.emplace(strategies::Context{.module = *module,
                                        .optim = recipe.optim,
                                        .comm = *alone,
                                        .bus = bus,
                                        .clock = clock,
                                        .compress = recipe.compress,
                                        .ps = ps,
                                        .timing = recipe.timing,
                                        .cluster = cluster,
                                        .terms = terms_of(recipe),
                                        .compression = recipe.comm.compression,
                                        .seed = options.seed,
                                        .label_smoothing = recipe.train.label_smoothing,
                                        .micro_batches = recipe.train.micro_batches,
                                        .played = static_cast<int>(recipe.parallel.workers),
                                        .threads = threads,
                                        .repeatable = recipe.train.repeatable});
  }

  Recipe recipe;
  ps::PsConfig ps;
  Datasets datasets;
  std::shared_ptr<nn::GraphModule> module;
  std::unique_ptr<comm::Communicator> alone;
  observe::Bus bus;
  SteadyClock clock;
  std::optional<strategies::Context> context;
};

}  // namespace

Recipe recipe_for(const Recipe& given, const ps::Cluster& cluster) {
  Recipe recipe = given;
  if (cluster.role == ps::Cluster::Role::none) return recipe;
  if (!strategies::is_centralised(recipe.strategy.name))
    throw ConfigError(fmt::format("strategy '{}' has no parameter server; use one like strategy.name=asgd", recipe.strategy.name));
  if (recipe.ps.executor != "auto" && recipe.ps.executor != "processes")
    throw ConfigError(fmt::format(
        "ps.executor={} has all workers in one process, and these are several; leave ps.executor out, or start it without a launcher",
        recipe.ps.executor));
  if (recipe.train.device != "auto" && recipe.train.device != "cpu")
    throw ConfigError(
        fmt::format("train.device={}: servers and workers of several processes keep parameters in host memory, and compute there; leave "
                    "train.device out, or start it without a launcher",
                    recipe.train.device));
  recipe.train.device = "cpu";
  recipe.ps.executor = "processes";
  if (recipe.parallel.workers == 0) recipe.parallel.workers = std::max(cluster.workers, 1);
  recipe.ps.servers = std::ssize(cluster.servers);
  return recipe;
}

std::int64_t run_remote_worker(const Recipe& given, const ps::Cluster& cluster, const std::atomic<bool>& stop) {
  Remote remote(given, cluster);
  const Recipe& recipe = remote.recipe;
  auto connected = ps::join(cluster, strategies::layout_of(*remote.context), strategies::join_options(*remote.context));
  ps::RemoteClient& servers = *connected;
  strategies::CentralWorker worker(*remote.context, remote.ps, std::move(connected), servers.worker());
  worker.begin();

  data::LoaderOptions reading;
  reading.batch = shared_batch(recipe, recipe.data.batch) / recipe.parallel.workers;
  reading.seed = static_cast<std::uint64_t>(recipe.train.seed);
  reading.augment = recipe.data.augment, reading.drop_last = recipe.data.drop_last;
  const data::Dataset& dataset = *remote.datasets.training;
  data::Sampler sampler(dataset.size(), reading.batch, true, reading.drop_last, reading.seed);
  data::Batch samples;
  std::int64_t epoch = -1, finished = 0;
  // Who was started with the servers stays until the first one has no more work: what is under way belongs into its last checkpoint.
  while (!stop || !cluster.job.empty() || cluster.ranks) {
    const std::optional<ps::Task> task = servers.next(worker.visits());
    if (!task) break;
    if (task->epoch != epoch)
      sampler.start(task->epoch,
                    shared_batch(recipe, optim::batch_at(recipe.schedule, recipe.data.batch, task->epoch)) / recipe.parallel.workers);
    epoch = task->epoch;
    data::fill_batch(dataset, reading, sampler, epoch, task->batch, samples);
    const strategies::Batch batch = as_tensors(samples, dataset.info());
    const at::Tensor sums = worker.minibatch(batch, {.step = task->step, .rate = task->rate});
    servers.done(*task, sums[0].item<double>(), sums[1].item<double>(), batch.targets.numel());
    ++finished;
  }
  return finished;
}

void run_remote_server(const Recipe& given, const ps::Cluster& cluster, const std::atomic<bool>& stop) {
  Remote remote(given, cluster);
  const auto cuts = strategies::cuts_of(*remote.context, std::ssize(cluster.servers));
  const auto index = static_cast<std::size_t>(cluster.index);
  const auto host = strategies::make_host(*remote.context, remote.ps, cuts, index);
  ServerSnapshots snapshots(remote.recipe, cluster, *host);
  if (cluster.restarts > 0) snapshots.restore();
  else snapshots.begin();
  const auto options = strategies::service_options(*remote.context, cuts, index);
  const auto server = ps::serve(cluster, host, strategies::layout_of(*remote.context), options);
  // Told to stop, it stays for those who finish what is under way, and for the first server's last look.
  const SteadyClock clock;
  for (std::optional<Nanoseconds> until; !server->deserted(); snapshots.write_if_due()) {
    if (stop && !until) until = clock.now() + remote.ps.patience();
    if (until && (server->workers().empty() || clock.now() > *until)) break;
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace paceline::train
