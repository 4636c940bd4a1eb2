#include "paceline/train/recipe.h"

#include <fmt/format.h>
#include <algorithm>

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
  section
      .field("micro_batches", micro_batches,
             "parts in which a worker computes its share of a batch, one after the other, to save memory: gradients add up. No more than "
             "its share has samples; a smaller last batch of an epoch is computed in fewer parts")
      .at_least(1);
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
