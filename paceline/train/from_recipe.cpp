#include "paceline/train/from_recipe.h"

#include <ATen/Context.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/program.h"
#include "paceline/data_parallel/buffer.h"
#include "paceline/data_parallel/per_worker.h"
#include "paceline/nn/graph_module.h"
#include "paceline/tensor/device.h"
#include "paceline/train/weights.h"

namespace paceline::train {
namespace {

/// A user's module draws its weights from LibTorch's generator, which a process has once for all its workers. Those of rank 0 count, so it
/// comes first, alone.
std::shared_ptr<nn::Model> make_users_model(const Recipe& recipe, const Workload& workload, const c10::Device& device,
                                            comm::Communicator& comm) {
  if (recipe.train.precision == "bf16")
    throw ConfigError(
        "train.precision=bf16 is for the networks that Paceline builds, and this program has a module of its own; leave it out");
  std::shared_ptr<nn::Model> model;
  const auto make = [&] {
    model = workload.model({.device = device, .allocate = data_parallel::allocate_from(comm)});
    if (!model) throw ConfigError("the workload's function made no model; return one from it");
  };
  if (comm.rank() == 0) at::manual_seed(static_cast<std::uint64_t>(recipe.train.seed)), make();
  if (comm.size() > 1) comm.run(comm::barrier({.deadline = comm::kUntilTheEnd}));
  if (comm.rank() > 0) make();
  return model;
}

}  // namespace

Datasets make_datasets(const Recipe& recipe, const Workload& workload) {
  if (!workload.training != !workload.test)
    throw ConfigError(fmt::format("the workload has a {} dataset and no {} one; give both", workload.training ? "training" : "test",
                                  workload.training ? "test" : "training"));
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

std::shared_ptr<nn::Model> make_model(const Recipe& recipe, const Workload& workload, const data::Info& info, comm::Communicator& comm,
                                      const std::string& weights) {
  nn::GraphModule::Options options;
  options.device = tensor::parse_device(recipe.train.device);
  std::shared_ptr<nn::Model> model;
  if (workload.model) {
    model = make_users_model(recipe, workload, options.device, comm);
  } else {
    options.precision = tensor::parse_precision(recipe.train.precision, options.device);
    options.seed = static_cast<std::uint64_t>(recipe.train.seed);
    options.fuse_norms = recipe.strategy.batch_norm != "sync";
    options.allocate = data_parallel::allocate_from(comm);
    model = std::make_shared<nn::GraphModule>(graph_for(recipe.model, info), options);
  }
  if (!weights.empty()) load_weights(*model, weights);
  data_parallel::equalise(comm, *model);
  return model;
}

std::string network_of(const Recipe& recipe, const Workload& workload) {
  if (!workload.name.empty()) return workload.name;
  return workload.model ? "module" : recipe.model.network;
}

std::int64_t macs_of(const nn::Model& model) {
  const auto* network = dynamic_cast<const nn::GraphModule*>(&model);
  return network ? network->graph().macs() : 0;
}

step::Context context_of(const Recipe& recipe, const Workload& workload, nn::Model& model, const comm::Mesh& mesh, observe::Bus& bus,
                         const Clock& clock, int threads) {
  if (workload.loss && recipe.train.label_smoothing > 0)
    throw ConfigError(
        fmt::format("train.label_smoothing={} is for softmax with cross entropy, and this program has a loss of its own; leave it out",
                    recipe.train.label_smoothing));
  return {.model = model,
          .optim = recipe.optim,
          .mesh = mesh,
          .bus = bus,
          .clock = clock,
          .compress = recipe.compress,
          .compression = recipe.comm.compression,
          .algorithm = recipe.comm.algorithm,
          .shaped = recipe.comm.shapes(),
          .seed = static_cast<std::uint64_t>(recipe.train.seed),
          .loss = workload.loss ? workload.loss : std::make_shared<nn::SoftmaxLoss>(recipe.train.label_smoothing),
          .micro_batches = recipe.train.micro_batches,
          .threads = threads,
          .record_steps = recipe.train.record_steps && model.recordable(),
          .repeatable = recipe.train.repeatable};
}

central::Settings servers_of(const Recipe& recipe, const ps::Cluster& cluster) {
  central::Settings settings = recipe.servers().value_or(central::Settings{});
  settings.cluster = cluster, settings.terms = terms_of(recipe);
  return settings;
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
  const std::int64_t sharing = recipe.parallel.workers / recipe.workers_per_trainer();  // trainers, each with a part of the batch
  const std::int64_t batch =
      shared_batch(recipe, optim::batch_at(recipe.schedule, recipe.data.batch, epoch)) / recipe.workers_per_trainer();
  if (batch <= samples) return batch;
  // It has grown past the samples. What is left over is dropped, or is the ragged batch of the epoch.
  return recipe.data.uneven == "refuse" && recipe.data.drop_last ? samples - samples % sharing : samples;
}

}  // namespace paceline::train
