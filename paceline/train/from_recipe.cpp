#include "paceline/train/from_recipe.h"

#include <ATen/Context.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/run_program.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/per_worker.h"
#include "paceline/graph/hybrid.h"
#include "paceline/graph/registry.h"
#include "paceline/graph/stages.h"
#include "paceline/nn/graph_module.h"
#include "paceline/nn/recomputing_model.h"
#include "paceline/nn/split_loss.h"
#include "paceline/sharded/gathering_model.h"
#include "paceline/tensor/device.h"
#include "paceline/train/mesh_advice.h"
#include "paceline/train/stage_cut.h"
#include "paceline/train/weights.h"

namespace paceline::train {
namespace {

/// A user's module draws its weights from LibTorch's generator, which all workers of a process share. Along the data axis the weights of
/// rank 0 count, so it draws first, alone; the first ranks of a pipeline's stages draw the same weights, one after the other.
std::shared_ptr<nn::Model> make_users_model(const Recipe& recipe, const Workload& workload, const c10::Device& device,
                                            const comm::Mesh& mesh) {
  comm::Communicator& comm = mesh.data();
  if (mesh.tensor().size() > 1)
    throw MeshRefusal(
        fmt::format("parallel.tensor={} splits the layers of Paceline's own networks, but this program has its own module; use ",
                    mesh.tensor().size()),
        "parallel.tensor=1");
  if (recipe.parallel.hybrid != "none")
    throw ConfigError(
        fmt::format("parallel.hybrid={} names layers of Paceline's own networks, but this program has its own module; leave it out",
                    recipe.parallel.hybrid));
  if (recipe.train.precision == "bf16")
    throw ConfigError("train.precision=bf16 is for Paceline's own networks, but this program has its own module; leave it out");
  if (recipe.train.storage != "fp32")
    throw ConfigError(fmt::format("train.storage={} is for Paceline's own networks, but this program has its own module; leave it out",
                                  recipe.train.storage));
  if (recipe.train.gradients != "storage")
    throw ConfigError(
        fmt::format("train.gradients={} is for Paceline's own networks, but this program has its own module, in which autograd gives every "
                    "gradient its parameter's dtype; leave it out",
                    recipe.train.gradients));
  std::shared_ptr<nn::Model> model;
  const auto make = [&] {
    model = workload.model({.device = device, .allocate = data_parallel::allocate_from(comm)});
    if (!model) throw ConfigError("the workload's function for the model returned null; return a model");
  };
  const auto meet = [](comm::Communicator& axis) {
    if (axis.size() > 1) axis.run(comm::barrier({.deadline = comm::kUntilTheEnd}));
  };
  for (int stage = 0; stage < mesh.pipeline().size(); ++stage, meet(mesh.pipeline()))
    if (comm.rank() == 0 && stage == mesh.pipeline().rank()) {
      const auto alone = nn::hold_generator();
      at::manual_seed(static_cast<std::uint64_t>(recipe.train.seed));
      make();
    }
  meet(comm);
  if (comm.rank() > 0) make();
  return model;
}

/// The rank's units of a user's module.
void keep_stage(nn::Model& model, const std::vector<nn::Units>& held) {
  auto* const module = dynamic_cast<nn::ModuleModel*>(&model);
  if (!module)
    throw MeshRefusal(
        "parallel.pipeline can cut Paceline's own networks and modules (nn::ModuleModel), but this program has another kind of model; use ",
        "parallel.pipeline=1");
  module->keep(held);
}

StagedModel staged_module(const Recipe& recipe, const Workload& workload, const data::Info& info, const c10::Device& device,
                          const comm::Mesh& mesh, const Clock& clock) {
  StagedModel made;
  try {
    made.model = make_users_model(recipe, workload, device, mesh);
    made.stages = cut_module(recipe, *made.model, info, mesh, clock);
    if (!made.stages.empty()) keep_stage(*made.model, graph::held_by(made.stages, mesh.pipeline().size(), mesh.pipeline().rank()));
  } catch (const MeshRefusal& refusal) {
    refuse_mesh(refusal, recipe, check_by_module(made.model.get()));
  }
  return made;
}

StagedModel staged_network(const Recipe& recipe, const Workload& workload, const data::Info& info, nn::GraphModule::Options options,
                           const comm::Mesh& mesh, const Clock& clock) {
  comm::Communicator& comm = mesh.data();
  options.precision = tensor::parse_precision(recipe.train.precision, options.device);
  options.dtype = recipe.train.storage == "fp16" ? c10::kHalf : recipe.train.storage == "bf16" ? c10::kBFloat16 : c10::kFloat;
  if (recipe.train.stored_gradients() == "fp32") options.gradient_dtype = c10::kFloat;
  options.seed = static_cast<std::uint64_t>(recipe.train.seed);
  options.clock = &clock;
  options.fuse_norms = recipe.strategy.batch_norm != "sync";
  options.allocate = data_parallel::allocate_from(comm);
  if (mesh.tensor().size() > 1) options.tensor = &mesh.tensor();
  options.sequence = recipe.parallel.sequence;
  const graph::Graph graph = graph_for(recipe.model, info);
  try {
    std::vector<nn::Units> stages = cut_network(recipe, graph, options, info, mesh, clock, workload.loss != nullptr);
    options.held = graph::held_by(stages, mesh.pipeline().size(), mesh.pipeline().rank());
    if (recipe.parallel.hybrid != "none")
      options.hybrid = graph::hybrid_split(graph, recipe.parallel.hybrid, comm.size(), recipe.data.batch);
    const auto is_spread = [](const graph::Parameter& parameter) { return parameter.spread; };
    const bool spreads = comm.size() > 1 && std::ranges::any_of(graph.parameters(), is_spread);
    if (spreads || (options.hybrid && options.hybrid->splits_anything())) options.data = &comm;
    return {std::make_shared<nn::GraphModule>(graph, options), std::move(stages)};
  } catch (const MeshRefusal& refusal) {
    refuse_mesh(refusal, recipe, check_by_network(graph, workload.loss != nullptr));
  }
}

/// Null for a user's module.
const nn::GraphModule* graph_module_of(const nn::Model& model) { return dynamic_cast<const nn::GraphModule*>(&model.network()); }

/// The workload's loss, otherwise softmax with cross entropy; if workers share the logits, over this worker's classes.
std::shared_ptr<const nn::Loss> loss_of(const Recipe& recipe, const Workload& workload, const nn::Model& model) {
  const nn::GraphModule* network = graph_module_of(model);
  const bool split = network && network->split().splits_logits(network->graph());
  if (workload.loss) return workload.loss;
  if (!split) return std::make_shared<nn::SoftmaxLoss>(recipe.train.label_smoothing);
  return std::make_shared<nn::SplitSoftmaxLoss>(*network->options().tensor, network->graph().classes(), recipe.train.label_smoothing,
                                                network->options().clock);
}

// Ranks that communicate in the middle of a pass record it together. A pipeline's messages are sent by the hosts.
bool can_record(const Recipe& recipe, const comm::Mesh& mesh) {
  if (mesh.tensor().size() > 1 && recipe.comm.shapes()) return false;  // the hosts slow the links down artificially
  return mesh.pipeline().size() == 1 && mesh.tensor_in_one_process();
}

}  // namespace

Datasets make_datasets(const Recipe& recipe, const Workload& workload) {
  if (!workload.training != !workload.test)
    throw ConfigError(fmt::format("the workload has a {} dataset but no {} one; give both", workload.training ? "training" : "test",
                                  workload.training ? "test" : "training"));
  if (workload.training && recipe.data.held_out > 0)
    throw ConfigError(fmt::format("data.held_out={} divides datasets that Paceline reads, but this program has its own; leave it out",
                                  recipe.data.held_out));
  if (workload.training) return {workload.training, workload.test};
  const auto seed = static_cast<std::uint64_t>(recipe.train.seed);
  return {data::make_dataset(recipe.data, data::Split::train, seed), data::make_dataset(recipe.data, data::Split::test, seed)};
}

void configure_libtorch(const Recipe& recipe, int threads) {
  const c10::Device device = tensor::parse_device(recipe.train.device);
  tensor::configure_libtorch(device, tensor::parse_precision(recipe.train.precision, device), threads, recipe.train.repeatable);
}

void ensure_memory_for(int threads) {
  constexpr std::uint64_t kEach = 48 << 20, kOnce = 64 << 20;  // a buffer of OpenBLAS, a stack and an arena of malloc
  ensure_address_space(kOnce + kEach * static_cast<std::uint64_t>(std::max(threads, 1)));
}

StagedModel make_model(const Recipe& recipe, const Workload& workload, const data::Info& info, const comm::Mesh& mesh,
                       const std::string& weights, const Clock& clock) {
  nn::GraphModule::Options options;
  options.device = tensor::parse_device(recipe.train.device);
  if (recipe.parallel.offload && options.device.is_cpu())
    throw ConfigError(
        "parallel.offload=true: with train.device=cpu the state is already in host memory; leave it out, or use train.device=cuda");
  StagedModel made = workload.model ? staged_module(recipe, workload, info, options.device, mesh, clock)
                                    : staged_network(recipe, workload, info, options, mesh, clock);
  made.model = nn::recomputing(std::move(made.model), nn::parse_recompute(recipe.train.recompute));
  if (!weights.empty()) load_weights(*made.model, weights);
  data_parallel::equalise(mesh.data(), *made.model);
  return made;
}

std::string network_of(const Recipe& recipe, const Workload& workload) {
  if (!workload.name.empty()) return workload.name;
  return workload.model ? "module" : recipe.model.network;
}

void require_own_program(const Checkpoint& checkpoint, const std::string& source, const Workload& workload) {
  const auto is_it = [&](const auto& row) { return row.key == checkpoint.network; };
  const bool built_in = std::ranges::any_of(graph::networks(), is_it);
  if (workload.model || workload.name == checkpoint.network || built_in || checkpoint.network.empty()) return;
  throw ConfigError(fmt::format("{} belongs to '{}', a model of another program; resume it with that program: PROGRAM --resume {}", source,
                                checkpoint.network, source));
}

std::shared_ptr<nn::Model> share_out(const Recipe& recipe, std::shared_ptr<nn::Model> model, const comm::Mesh& mesh, const Clock& clock) {
  const auto stage = static_cast<int>(recipe.parallel.zero);
  if (stage < 2 || mesh.data().size() == 1) return model;
  return std::make_shared<sharded::GatheringModel>(std::move(model), mesh.data(), clock, stage);
}

std::int64_t parameters_of(nn::Model& model) {
  const nn::GraphModule* network = graph_module_of(model);
  if (network) return network->graph().parameter_count();
  std::int64_t count = 0;
  for (const tensor::Listed& item : model.arena().listing()) count += graph::elements(item.shape);
  return count;
}

std::int64_t macs_of(const nn::Model& model) {
  const nn::GraphModule* network = graph_module_of(model);
  return network ? network->graph().macs() : 0;
}

step::Context context_of(const Recipe& recipe, const Workload& workload, nn::Model& model, const std::vector<nn::Units>& stages,
                         const comm::Mesh& mesh, observe::Bus& bus, const Clock& clock) {
  if (workload.loss && recipe.train.label_smoothing > 0)
    throw ConfigError(
        fmt::format("train.label_smoothing={} is for the built-in softmax cross entropy, but this program has its own loss; leave it out",
                    recipe.train.label_smoothing));
  return {.model = model,
          .optim = recipe.optim,
          .mesh = mesh,
          .bus = bus,
          .clock = clock,
          .compress = recipe.compress,
          .compression = recipe.comm.compression,
          .seed = static_cast<std::uint64_t>(recipe.train.seed),
          .loss = loss_of(recipe, workload, model),
          .micro_batches = recipe.train.micro_batches,
          .offload = recipe.parallel.offload,
          .record_steps = recipe.train.record_steps && model.recordable() && can_record(recipe, mesh),
          .repeatable = recipe.train.repeatable,
          .pipeline = {.schedule = recipe.parallel.schedule, .chunks = recipe.parallel.chunks, .stages = stages}};
}

central::Settings servers_of(const Recipe& recipe, const ps::Cluster& cluster, int threads) {
  central::Settings settings = recipe.servers().value_or(central::Settings{});
  settings.cluster = cluster, settings.terms = terms_of(recipe), settings.threads = threads;
  return settings;
}

strategies::StrategySettings strategy_of(const Recipe& recipe, const ps::Cluster& cluster, int threads) {
  return {recipe.strategy,
          {.zero = static_cast<int>(recipe.parallel.zero),
           .bf16_gradients = recipe.comm.gradient_dtype == "bf16",
           .algorithm = recipe.comm.algorithm,
           .shaped = recipe.comm.shapes()},
          servers_of(recipe, cluster, threads)};
}

data::LoaderOptions loader_options(const Recipe& recipe, data::Split split, const comm::Communicator& comm, std::int64_t batch) {
  data::LoaderOptions options;
  options.batch = batch;
  options.rank = comm.rank(), options.workers = comm.size();
  options.seed = static_cast<std::uint64_t>(recipe.train.seed);
  options.shuffle = options.augment = split == data::Split::train;
  options.augment = options.augment && recipe.data.augment;
  options.drop_last = split == data::Split::train && recipe.data.drop_last;
  options.pad = split == data::Split::train && recipe.data.uneven == "pad";
  return options;
}

std::int64_t minibatch_of(const Recipe& recipe, std::int64_t samples, std::int64_t epoch) {
  const std::int64_t sharing = recipe.servers() ? 1 : recipe.parallel.data_workers();  // trainers that share the batch
  const std::int64_t batch =
      shared_batch(recipe, optim::batch_at(recipe.schedule, recipe.data.batch, epoch)) / recipe.workers_per_trainer();
  if (batch <= samples) return batch;
  // The batch has grown beyond the number of samples. What remains is dropped, or is the ragged batch of the epoch.
  return recipe.data.uneven == "refuse" && recipe.data.drop_last ? samples - samples % sharing : samples;
}

}  // namespace paceline::train
