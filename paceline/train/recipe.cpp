#include "paceline/train/recipe.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/schedule/pipeline.h"

namespace paceline::train {
namespace {

constexpr std::string_view kTerms[] = {
    "model.network",
    "data.name",
    "data.batch",
    "data.train_samples",
    "data.held_out",
    "data.augment",
    "data.crop",
    "data.flip",
    "data.cutout",
    "data.normalise",
    "data.drop_last",
    "data.uneven",
    "train.seed",
    "train.micro_batches",
    "train.label_smoothing",
    "strategy.name",
    "parallel.workers",
    "ps.rule",
    "ps.consistency",
    "ps.period",
    "ps.optimizer",
    "schedule.batch_milestones",
    "schedule.batch_factor",
    "schedule.largest_batch",
};

/// " in epoch 31" where the schedule has made the batch so large; nothing where it is the recipe's own.
std::string grown_in(const Recipe& recipe, std::int64_t batch) {
  if (batch == recipe.data.batch) return {};
  for (const double milestone : recipe.schedule.batch_milestones)
    if (const auto epoch = static_cast<std::int64_t>(std::ceil(milestone));
        optim::batch_at(recipe.schedule, recipe.data.batch, epoch) == batch)
      return fmt::format(" in epoch {}", epoch + 1);
  return {};
}

}  // namespace

void TrainConfig::describe(Section& section) {
  section.field("epochs", epochs, "passes over the training data").at_least(1).at_most(1e9);
  section.field("steps", steps, "stop after so many steps; 0: as many as the epochs have").at_least(0);
  section.field("seed", seed, "names every random stream of the run").at_least(0);
  section.field("device", device, "auto, cpu, cuda or cuda:N");
  section.field("precision", precision, "of the products; updates stay in fp32").one_of({"fp32", "tf32", "bf16"});
  section
      .field("storage", storage,
             "of parameters and gradients, which travel in it too; fp16 and bf16 have master copies in fp32, and fp16 scales the loss")
      .one_of({"fp32", "bf16", "fp16"});
  section
      .field("recompute", recompute,
             "activations that the backward pass computes again, to save memory. units: all but what goes into each unit (a block, a "
             "layer of a transformer); all: all but what goes into about √n segments of the n units; the same bits either way")
      .one_of({"none", "units", "all"});
  section
      .field("memory_gb", memory_gb,
             "most that a rank may hold, in GB (10⁹ bytes): a run that needs more by the formulas of `paceline memory` is refused; 0: what "
             "the machine has")
      .at_least(0);
  section
      .field("threads", threads,
             "of the CPU, for each worker; 0: OMP_NUM_THREADS, else all cores that may be used, shared among the workers")
      .at_least(0);
  section.field("micro_batches", micro_batches, "compute a batch in so many parts and add their gradients, to save memory").at_least(1);
  section.field("label_smoothing", label_smoothing, "share of the target that is spread over all classes").at_least(0).at_most(1);
  section.field("evaluate_every", evaluate_every, "epochs between evaluations on the test data, 1 or more; 0: at the end only").at_least(0);
  section.field("checkpoint_every", checkpoint_every, "steps between checkpoints, beside those of epochs; 0: see checkpoint_share")
      .at_least(0);
  section
      .field(
          "checkpoint_share", checkpoint_share,
          "without checkpoint_every: most of the run's time that checkpoints may take. One is left out at the end of an epoch, or made in "
          "its middle, as their measured cost says; 1: one at the end of every epoch; 0: only at the end of the run")
      .at_least(0)
      .at_most(1);
  section.field("checkpoints", checkpoints, "write checkpoints; without any a run cannot be resumed");
  section.field("keep", keep, "how many checkpoints to keep").at_least(1);
  section.field("runs", runs, "folder that holds the runs");
  section.field("name", name, "of the run's folder; empty: made from network, dataset and time");
  section.field("trace", trace, "write a trace that opens in Perfetto");
  section.field("cluster", cluster, "by which a step's time is predicted; empty: cluster.toml here, else rules of thumb");
  section.field("profile", profile, "layers' times for that; empty: NETWORK.profile.json here, else the cluster's speed");
  section.field("record_steps", record_steps, "CUDA: record the step in a CUDA graph");
  section.field("repeatable", repeatable,
                "the same bits in every run: nothing that changes them is chosen by measurement, neither CUDA's algorithms nor those of "
                "comm.algorithm=auto");
}

void ParallelConfig::describe(Section& section) {
  section.field("workers", workers, "how many train together; 0: one for each process that was started, or as many as the sizes below make")
      .at_least(0);
  section.field("data", data, "workers that share each batch; 0: the rest").at_least(0);
  section.field("pipeline", pipeline, "workers that share the units of the network; 0: the rest").at_least(0);
  section.field("tensor", tensor, "workers that share each layer; 0: the rest").at_least(0);
  section.field("sequence", sequence, "with tensor > 1, for transformers: between the layers that they share, workers share positions");
  section.field("hybrid", hybrid,
                "fully connected layers that data-parallel workers share, so that activations travel and not gradients: none; auto, those "
                "where that is fewer bytes; or names, as in \"classifier.1,classifier.4\", with * at the end of one for anything");
  section.field("zero", zero, "ZeRO's stage: what data-parallel workers do not keep twice").at_least(0).at_most(3);
  section.field("offload", offload, "CUDA: the optimizer's state and fp32 master copies lie in host memory, and the host updates");
  std::vector<std::string_view> schedules;
  for (const auto& entry : schedule::pipelines()) schedules.push_back(entry.key);
  section.field("schedule", schedule, "of a pipeline's micro-batches, which train.micro_batches counts").one_of(schedules);
  section.field("chunks", chunks, "parts of the network on each worker of an interleaved pipeline; 0: 2 there, otherwise 1").at_least(0);
  section.field("costs", costs, "of units, by which a pipeline is cut into stages: counted from the network, or measured by worker 0")
      .one_of({"counted", "measured"});
}

comm::MeshSizes ParallelConfig::mesh() const {
  return {.data = static_cast<int>(data), .pipeline = static_cast<int>(pipeline), .tensor = static_cast<int>(tensor)};
}

std::int64_t ParallelConfig::workers_of_mesh() const {
  const auto at_least_one = [](std::int64_t size) { return std::max<std::int64_t>(size, 1); };
  return at_least_one(data) * at_least_one(pipeline) * at_least_one(tensor);
}

std::int64_t ParallelConfig::data_workers() const {
  const std::int64_t all = workers > 0 ? workers : workers_of_mesh();
  return comm::resolved(mesh(), static_cast<int>(all)).data;
}

void CommSection::describe(Section& section) {
  comm::CommConfig::describe(section);
  std::vector<std::string_view> keys = {"none"};
  for (const auto& entry : compress::compressors()) keys.push_back(entry.key);
  section.field("compression", compression, "of gradients on their way; its settings are in [compress]").one_of(keys);
  section.field("gradient_dtype", gradient_dtype, "in which gradients travel; bf16 is added in fp32").one_of({"fp32", "bf16"});
}

Recipe Recipe::demonstration() {
  Recipe recipe;
  recipe.model.network = "lenet5";
  recipe.data.name = "shapes";
  recipe.data.batch = 64;
  recipe.optim.rate = 0.08;
  recipe.schedule.name = "cosine";
  recipe.schedule.warmup_epochs = 0.2;
  recipe.train.epochs = 3;
  return recipe;
}

Config Recipe::config() {
  Config config;
  config.bind("model", "the network", model);
  config.bind("data", "the dataset and how it is fed", data);
  config.bind("optim", "the optimizer", optim);
  config.bind("schedule", "the learning rate and the batch over the run", schedule);
  config.bind("train", "the run", train);
  config.bind("strategy", "how workers train together", strategy);
  config.bind("parallel", "how many workers", parallel);
  config.bind("comm", "how workers talk", comm);
  config.bind("compress", "settings of comm.compression", compress);
  config.bind("ps", "the parameter server of strategies that have one", ps);
  config.bind("timing", "how long workers take under ps.executor=virtual, and stragglers under all", timing);
  config.bind("compare", "what `paceline compare` compares", compare);
  return config;
}

std::optional<central::Settings> Recipe::servers() const {
  if (!strategies::is_centralised(strategy.name)) return std::nullopt;
  return central::Settings{.strategy = strategy.name,
                           .ps = strategies::paired(strategy.name, ps),
                           .timing = timing,
                           .workers = static_cast<int>(std::max<std::int64_t>(parallel.workers, 1))};
}

namespace {

void require_together(const Recipe& recipe, const std::string& what) {
  if (strategies::makes_steps_together(recipe.strategy.name)) return;
  throw ConfigError(
      fmt::format("{} needs workers that make every step together, and those of strategy '{}' do not; use strategy.name=allreduce", what,
                  recipe.strategy.name));
}

void validate_hybrid(const Recipe& recipe) {
  const ParallelConfig& parallel = recipe.parallel;
  require_together(recipe, fmt::format("parallel.hybrid={}", parallel.hybrid));
  if (recipe.comm.compression != "none")
    throw ConfigError(
        fmt::format("parallel.hybrid={} and comm.compression={}: compressors take the gradients of all layers; leave one of "
                    "them out",
                    parallel.hybrid, recipe.comm.compression));
  for (const auto& [axis, size] : {std::pair{"tensor", parallel.tensor}, {"pipeline", parallel.pipeline}})
    if (size != 1)
      throw ConfigError(
          fmt::format("parallel.hybrid={} shares layers among data-parallel workers that have the rest of the network each, and "
                      "parallel.{}={} divides that; use parallel.{}=1",
                      parallel.hybrid, axis, size, axis));
}

void validate_mesh(const Recipe& recipe) {
  const ParallelConfig& parallel = recipe.parallel;
  const std::int64_t sharing = parallel.data_workers();
  if (sharing > 1 && strategies::is_alone(recipe.strategy.name))
    throw ConfigError(
        fmt::format("parallel.workers={} needs a strategy for several workers, and strategy '{}' has one; use strategy.name=auto",
                    parallel.workers, recipe.strategy.name));
  const bool splits = sharing < parallel.workers;  // layers, or the list of them
  if (const std::int64_t experts = recipe.model.experts; experts > 0) {
    graph::make_graph(recipe.model);  // refuses experts that the network does not have
    require_together(recipe, fmt::format("model.experts={}", experts));
    graph::check_experts(experts, sharing);
  }
  if (splits && parallel.pipeline != 1) require_together(recipe, fmt::format("parallel.pipeline={}", parallel.pipeline));
  if (splits && parallel.tensor != 1) require_together(recipe, fmt::format("parallel.tensor={}", parallel.tensor));
  if (parallel.zero > 0) require_together(recipe, fmt::format("parallel.zero={}", parallel.zero));
  if (const std::int64_t share = recipe.data.batch / sharing; parallel.pipeline > 1 && recipe.train.micro_batches > share)
    throw ConfigError(
        fmt::format("train.micro_batches={} is more than the {} samples that each of {} pipelines has of data.batch={}; use "
                    "train.micro_batches={}",
                    recipe.train.micro_batches, share, sharing, recipe.data.batch, std::max<std::int64_t>(share, 1)));
  if (parallel.hybrid != "none") validate_hybrid(recipe);
  if (splits && recipe.strategy.batch_norm == "sync")
    throw ConfigError("strategy.batch_norm=sync joins data-parallel workers alone so far; use parallel.pipeline=1 and parallel.tensor=1");
}

void validate_gradients(const Recipe& recipe) {
  if (recipe.parallel.offload) require_together(recipe, "parallel.offload=true");
  if (recipe.comm.gradient_dtype == "fp32") return;
  require_together(recipe, "comm.gradient_dtype=bf16");
  if (recipe.comm.compression != "none")
    throw ConfigError(fmt::format("comm.gradient_dtype=bf16 and comm.compression={} both say how gradients travel; leave one of them out",
                                  recipe.comm.compression));
  if (recipe.train.storage == "fp16")
    throw ConfigError(
        "comm.gradient_dtype=bf16 would cut the gradients of train.storage=fp16 from 11 bits to 8, and they travel in 16 already; use "
        "comm.gradient_dtype=fp32, or train.storage=bf16");
}

}  // namespace

void validate(const Recipe& recipe) {
  Recipe copy = recipe;
  copy.config().check();  // a program fills the structs itself
  check_threads("train.threads", recipe.train.threads);
  if (const double every = recipe.train.evaluate_every; every > 0 && every < 1)
    throw ConfigError(
        fmt::format("train.evaluate_every={} is less than an epoch, and evaluations come at the end of one; use 1 or more, or 0", every));
  if (recipe.ps.replica && !recipe.train.checkpoints)
    throw ConfigError("ps.replica=true keeps what follows a checkpoint, and train.checkpoints=false makes none; leave one of them out");
  validate_mesh(recipe);
  validate_gradients(recipe);
  if (recipe.train.storage != "fp32") {
    require_together(recipe, fmt::format("train.storage={}", recipe.train.storage));
    if (recipe.comm.compression != "none")
      throw ConfigError(fmt::format("train.storage={} and comm.compression={}: compressors take gradients in fp32; leave one of them out",
                                    recipe.train.storage, recipe.comm.compression));
  }
  if (recipe.train.micro_batches > recipe.data.batch)
    throw ConfigError(fmt::format("train.micro_batches={} is more than data.batch={}; a part needs at least one sample",
                                  recipe.train.micro_batches, recipe.data.batch));
  shared_batch(recipe, recipe.data.batch);
  if (recipe.strategy.batch_norm == "sync" && recipe.parallel.workers > 1 && recipe.data.uneven != "pad" &&
      (recipe.data.uneven == "weight" || !recipe.data.drop_last))
    throw ConfigError(
        "strategy.batch_norm=sync needs equally many samples on every worker; use data.uneven=pad, or data.drop_last=true with "
        "data.uneven=refuse");
  if (const auto servers = recipe.servers()) {
    if (recipe.data.uneven == "weight")
      throw ConfigError(fmt::format("strategy '{}' has minibatches of equal size; use data.uneven=refuse or pad", recipe.strategy.name));
    if (recipe.strategy.batch_norm == "sync")
      throw ConfigError(
          fmt::format("workers of strategy '{}' do not meet in the middle of a step; use strategy.batch_norm=local", recipe.strategy.name));
    servers->validate(recipe.optim, recipe.comm.compression);
  }
  optim::validate(recipe.optim);
  optim::validate(recipe.schedule);
}

std::int64_t shared_batch(const Recipe& recipe, std::int64_t batch) {
  const std::int64_t workers = recipe.parallel.data_workers(), left = batch % workers;
  if (left == 0 || recipe.data.uneven == "weight") return batch;
  const std::int64_t above = batch - left + workers, below = batch - left;
  const bool served = recipe.servers().has_value();
  if (recipe.data.uneven == "pad") return served ? above : batch;
  const std::string better = below > 0 ? fmt::format("{} or {}", below, above) : std::to_string(above);
  const std::string remedy = batch == recipe.data.batch
                                 ? fmt::format("data.batch={}", better)
                                 : fmt::format("a schedule.batch_factor or schedule.largest_batch that makes it {}", better);
  throw ConfigError(
      fmt::format("a batch of {}{} cannot be divided among {} workers; use {}{}", batch, grown_in(recipe, batch), workers, remedy,
                  served ? fmt::format(", or data.uneven=pad for {} samples each", above / workers)
                         : ", data.uneven=pad (some samples count twice) or data.uneven=weight (shares differ by one sample; the mean is "
                           "still over samples)"));
}

std::string terms_of(const Recipe& recipe) {
  Recipe copy = recipe;
  const Config config = copy.config();
  std::string terms;
  for (const Section& section : config.sections())
    for (const Field& field : section.fields())
      if (const std::string key = section.name() + "." + field.key();
          section.name() == "optim" || std::ranges::find(kTerms, key) != std::end(kTerms))
        terms += fmt::format("{}={}\n", key, field.toml());
  return terms;
}

graph::Graph graph_for(const graph::ModelConfig& model, const data::Info& info) {
  graph::ModelConfig fitted = model;
  if (fitted.input.empty()) fitted.input = info.input;
  if (fitted.classes == 0) fitted.classes = info.classes;
  graph::Graph graph = graph::make_graph(fitted);
  if (info.tokens && std::ranges::none_of(graph.layers(), [](const graph::Layer& layer) { return layer.kind == graph::Kind::embedding; }))
    throw ConfigError(
        fmt::format("network '{}' takes numbers, and dataset '{}' gives tokens; use model.network=gpt, or choose another dataset",
                    fitted.network, info.key));
  if (graph.input() != info.input)
    throw ConfigError(fmt::format("network '{}' takes {}, but dataset '{}' gives {}; leave model.input out", fitted.network,
                                  graph::to_string(graph.input()), info.key, graph::to_string(info.input)));
  if (graph.output().back() < info.classes)
    throw ConfigError(fmt::format("network '{}' has {} classes, but dataset '{}' has {}; leave model.classes out", fitted.network,
                                  graph.output().back(), info.key, info.classes));
  return graph;
}

}  // namespace paceline::train
