#include "paceline/train/recipe.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include "paceline/base/affinity.h"
#include "paceline/base/mesh_refusal.h"
#include "paceline/base/text.h"
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

/// " in epoch 31" if the schedule has made the batch so large; empty if it is the recipe's own.
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
  section.field("steps", steps, "stop after this many steps; 0: after all epochs").at_least(0);
  section.field("seed", seed, "seed of all random streams of the run").at_least(0);
  section.field("device", device, "device to train on: auto, cpu, cuda or cuda:N");
  section.field("precision", precision, "precision of matrix products and convolutions; updates are always in fp32")
      .one_of({"fp32", "tf32", "bf16"});
  section
      .field("storage", storage,
             "dtype in which parameters and gradients are stored and sent; fp16 and bf16 keep fp32 master copies, and fp16 scales the loss")
      .one_of({"fp32", "bf16", "fp16"});
  section
      .field("gradients", gradients,
             "dtype in which gradients are stored, added over micro-batches and sent: that of train.storage, or fp32, which then needs no "
             "second copy of them and does not scale the loss")
      .one_of({"storage", "fp32"});
  section
      .field("recompute", recompute,
             "activations that the backward pass recomputes to save memory. units: keep only the input of each unit (a block, a "
             "transformer layer); all: keep only the inputs of about √n segments of the n units. The bits of the result are the same")
      .one_of({"none", "units", "all"});
  section
      .field("memory_gb", memory_gb,
             "memory limit per rank in GB (10⁹ bytes): a run that needs more, by the formulas of `paceline memory`, is refused; 0: what "
             "the machine, or the GPU, has for each of its ranks")
      .at_least(0);
  section.field("threads", threads, "CPU threads per worker; 0: OMP_NUM_THREADS, else all usable cores, divided among the workers")
      .at_least(0);
  section.field("micro_batches", micro_batches, "compute a batch in at most this many parts, to save memory: gradients add up").at_least(1);
  section.field("label_smoothing", label_smoothing, "share of the target's probability that is spread over all classes")
      .at_least(0)
      .at_most(1);
  section.field("evaluate_every", evaluate_every, "epochs between evaluations on the test data, at least 1; 0: only at the end")
      .at_least(0);
  section
      .field("checkpoint_every", checkpoint_every, "steps between checkpoints, besides those at the end of epochs; 0: see checkpoint_share")
      .at_least(0);
  section
      .field("checkpoint_share", checkpoint_share,
             "without checkpoint_every: share of the run's time that checkpoints may take at most. Depending on their measured cost, "
             "an epoch has none, one or several; 1: one at the end of every epoch; 0: only at the end of the run")
      .at_least(0)
      .at_most(1);
  section.field("checkpoints", checkpoints, "write checkpoints; without them, a run cannot be resumed");
  section.field("keep", keep, "number of checkpoints to keep").at_least(1);
  section.field("runs", runs, "folder that contains the run folders");
  section.field("name", name, "name of the run folder; empty: made from network, dataset and time");
  section.field("trace", trace, "write a trace for Perfetto");
  section.field(
      "cluster", cluster,
      "cluster by which the step time is predicted: a key or a file; empty: cluster.toml in the current folder, else rules of thumb");
  section.field(
      "profile", profile,
      "profile with the layers' times, for that prediction; empty: NETWORK.profile.json in the current folder, else the cluster's speed");
  section.field("record_steps", record_steps, "CUDA: record the step in a CUDA graph");
  section.field("repeatable", repeatable,
                "give the same bits in every run: nothing that changes bits is chosen by measurement, neither CUDA's algorithms nor those "
                "of comm.algorithm=auto");
}

void ParallelConfig::describe(Section& section) {
  section.field("workers", workers, "number of workers; 0: one per started process, or the product of the sizes below").at_least(0);
  section.field("data", data, "size of the data axis: workers that share each batch; 0: all that the other axes leave").at_least(0);
  section
      .field("pipeline", pipeline,
             "size of the pipeline axis: workers that share the units of the network; 0: all that the other axes leave")
      .at_least(0);
  section.field("tensor", tensor, "size of the tensor axis: workers that share each layer; 0: all that the other axes leave").at_least(0);
  section.field("sequence", sequence,
                "with tensor > 1, for transformers: split activations by position between the tensor-parallel layers");
  section.field(
      "hybrid", hybrid,
      "fully connected layers that data-parallel workers share, so that they exchange activations instead of gradients: none; auto: those "
      "where this sends fewer bytes; or names, for example \"classifier.1,classifier.4\", where a final * matches anything");
  section.field("zero", zero, "ZeRO stage: what is divided among data-parallel workers instead of copied").at_least(0).at_most(3);
  section.field("offload", offload, "CUDA: keep the optimizer's state and the fp32 master copies in host memory, and update there");
  std::vector<std::string_view> schedules;
  for (const auto& entry : schedule::pipelines()) schedules.push_back(entry.key);
  section.field("schedule", schedule, "pipeline schedule: the order of the micro-batches, of which there are train.micro_batches")
      .one_of(schedules);
  section.field("chunks", chunks, "parts of the network per worker, for an interleaved pipeline; 0: 2 there, otherwise 1").at_least(0);
  section.field("costs", costs, "costs of units by which a pipeline is cut into stages: counted from the network, or measured by worker 0")
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
  section.field("compression", compression, "compressor of the gradients that are sent; its settings are in [compress]").one_of(keys);
  section.field("gradient_dtype", gradient_dtype, "dtype in which gradients are sent; bf16 is added in fp32").one_of({"fp32", "bf16"});
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
  config.bind("schedule", "the learning rate and the batch size over the run", schedule);
  config.bind("train", "the run", train);
  config.bind("strategy", "how workers train together", strategy);
  config.bind("parallel", "the number of workers, and how they divide the model and the data", parallel);
  config.bind("comm", "communication between workers", comm);
  config.bind("compress", "settings of comm.compression", compress);
  config.bind("ps", "the parameter server, for strategies that have one", ps);
  config.bind("timing", "durations of workers with ps.executor=virtual, and stragglers with any executor", timing);
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
      fmt::format("{} needs workers that make every step together, but those of strategy '{}' do not; use strategy.name=allreduce", what,
                  recipe.strategy.name));
}

void validate_hybrid(const Recipe& recipe) {
  const ParallelConfig& parallel = recipe.parallel;
  require_together(recipe, fmt::format("parallel.hybrid={}", parallel.hybrid));
  if (recipe.comm.compression != "none")
    throw ConfigError(
        fmt::format("parallel.hybrid={} with comm.compression={}: compressors need the gradients of all layers; leave one of them out",
                    parallel.hybrid, recipe.comm.compression));
  for (const auto& [axis, size] : {std::pair{"tensor", parallel.tensor}, {"pipeline", parallel.pipeline}})
    if (size != 1)
      throw MeshRefusal(fmt::format("parallel.hybrid={} needs data-parallel workers that each hold the rest of the network, but "
                                    "parallel.{}={} divides it; use ",
                                    parallel.hybrid, axis, size),
                        fmt::format("parallel.{}=1", axis));
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
    graph::make_graph(recipe.model);  // rejects experts that the network does not have
    require_together(recipe, fmt::format("model.experts={}", experts));
    graph::check_experts(experts, sharing);
  }
  if (splits && parallel.pipeline != 1) require_together(recipe, fmt::format("parallel.pipeline={}", parallel.pipeline));
  if (splits && parallel.tensor != 1) require_together(recipe, fmt::format("parallel.tensor={}", parallel.tensor));
  if (parallel.zero > 0) require_together(recipe, fmt::format("parallel.zero={}", parallel.zero));
  const std::int64_t all = parallel.workers > 0 ? parallel.workers : parallel.workers_of_mesh();
  const std::int64_t share = recipe.data.batch / sharing, parts = recipe.train.micro_batches;
  if (parts > share && comm::resolved(parallel.mesh(), static_cast<int>(all)).pipeline > 1)
    throw ConfigError(fmt::format("train.micro_batches={} is more than the {} that each of {} pipelines gets of data.batch={}; use {}={}",
                                  parts, plural(share, "sample"), sharing, recipe.data.batch,
                                  share > 0 ? "train.micro_batches" : "data.batch", share > 0 ? share : sharing * parts));
  if (parallel.hybrid != "none") validate_hybrid(recipe);
  if (splits && recipe.strategy.batch_norm == "sync")
    throw MeshRefusal("strategy.batch_norm=sync supports only data-parallel workers; use ", "parallel.pipeline=1 and parallel.tensor=1");
}

void validate_gradients(const Recipe& recipe) {
  if (recipe.parallel.offload) require_together(recipe, "parallel.offload=true");
  if (recipe.comm.gradient_dtype == "fp32") return;
  require_together(recipe, "comm.gradient_dtype=bf16");
  if (recipe.comm.compression != "none")
    throw ConfigError(fmt::format("comm.gradient_dtype=bf16 and comm.compression={} both say how gradients travel; leave one of them out",
                                  recipe.comm.compression));
  if (recipe.train.stored_gradients() == "fp16")
    throw ConfigError(
        "comm.gradient_dtype=bf16 would cut the gradients of train.storage=fp16 from 11 significant bits to 8, and they are sent in 16 "
        "bits anyway; use comm.gradient_dtype=fp32, train.gradients=fp32, or train.storage=bf16");
}

}  // namespace

void validate(const Recipe& recipe) {
  Recipe copy = recipe;
  copy.config().check();  // a program may have filled the structs itself
  check_threads("train.threads", recipe.train.threads);
  if (const double every = recipe.train.evaluate_every; every > 0 && every < 1)
    throw ConfigError(fmt::format(
        "train.evaluate_every={} is less than an epoch, but evaluations are made at the end of epochs; use at least 1, or 0", every));
  if (recipe.ps.replica && !recipe.train.checkpoints)
    throw ConfigError("ps.replica=true keeps what follows a checkpoint, but train.checkpoints=false writes none; leave one of them out");
  validate_mesh(recipe);
  validate_gradients(recipe);
  if (recipe.train.storage != "fp32") {
    require_together(recipe, fmt::format("train.storage={}", recipe.train.storage));
    if (recipe.comm.compression != "none" && recipe.train.stored_gradients() != "fp32")
      throw ConfigError(fmt::format(
          "train.storage={} with comm.compression={}: compressors need fp32 gradients; use train.gradients=fp32, or leave one out",
          recipe.train.storage, recipe.comm.compression));
  }
  if (recipe.train.micro_batches > recipe.data.batch)
    throw ConfigError(fmt::format("train.micro_batches={0} is more than data.batch={1}; use train.micro_batches={1}",
                                  recipe.train.micro_batches, recipe.data.batch));
  shared_batch(recipe, recipe.data.batch);
  if (recipe.strategy.batch_norm == "sync" && recipe.parallel.workers > 1 && recipe.data.uneven != "pad" &&
      (recipe.data.uneven == "weight" || !recipe.data.drop_last))
    throw ConfigError(
        "strategy.batch_norm=sync needs the same number of samples on every worker; use data.uneven=pad, or data.drop_last=true with "
        "data.uneven=refuse");
  if (const auto servers = recipe.servers()) {
    if (recipe.data.uneven == "weight")
      throw ConfigError(fmt::format("strategy '{}' needs minibatches of equal size; use data.uneven=refuse or pad", recipe.strategy.name));
    if (recipe.strategy.batch_norm == "sync")
      throw ConfigError(fmt::format("workers of strategy '{}' do not communicate in the middle of a step; use strategy.batch_norm=local",
                                    recipe.strategy.name));
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
        fmt::format("network '{}' takes numbers, but dataset '{}' gives tokens; use model.network=gpt, or choose another dataset",
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
