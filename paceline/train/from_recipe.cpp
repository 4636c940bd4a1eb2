#include "paceline/train/from_recipe.h"

#include <algorithm>

#include "paceline/base/program.h"
#include "paceline/data_parallel/buffer.h"
#include "paceline/data_parallel/per_worker.h"
#include "paceline/tensor/device.h"
#include "paceline/train/weights.h"

namespace paceline::train {
Datasets make_datasets(const Recipe& recipe) {
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

std::shared_ptr<nn::GraphModule> make_module(const Recipe& recipe, const data::Info& info, comm::Communicator& comm,
                                             const std::string& weights) {
  nn::GraphModule::Options options;
  options.device = tensor::parse_device(recipe.train.device);
  options.precision = tensor::parse_precision(recipe.train.precision, options.device);
  options.seed = static_cast<std::uint64_t>(recipe.train.seed);
  options.fuse_norms = recipe.strategy.batch_norm != "sync";
  options.allocate = data_parallel::allocate_from(comm);
  auto module = std::make_shared<nn::GraphModule>(graph_for(recipe.model, info), options);
  if (!weights.empty()) load_weights(*module, weights);
  data_parallel::equalise(comm, *module);
  return module;
}

step::Context context_of(const Recipe& recipe, nn::GraphModule& module, comm::Communicator& comm, observe::Bus& bus, const Clock& clock,
                         int threads) {
  return {.module = module,
          .optim = recipe.optim,
          .comm = comm,
          .bus = bus,
          .clock = clock,
          .compress = recipe.compress,
          .compression = recipe.comm.compression,
          .algorithm = recipe.comm.algorithm,
          .shaped = recipe.comm.shapes(),
          .seed = static_cast<std::uint64_t>(recipe.train.seed),
          .label_smoothing = recipe.train.label_smoothing,
          .micro_batches = recipe.train.micro_batches,
          .threads = threads,
          .record_steps = recipe.train.record_steps,
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
