// Which combinations of a recipe's settings are refused.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "paceline/base/affinity.h"
#include "paceline/base/mesh_refusal.h"
#include "paceline/base/text.h"
#include "paceline/train/recipe.h"

namespace paceline::train {
namespace {

/// " in epoch 31" if the schedule has made the batch so large; empty if it is the recipe's own.
std::string grown_in(const Recipe& recipe, std::int64_t batch) {
  if (batch == recipe.data.batch) return {};
  for (const double milestone : recipe.schedule.batch_milestones)
    if (const auto epoch = static_cast<std::int64_t>(std::ceil(milestone));
        optim::batch_at(recipe.schedule, recipe.data.batch, epoch) == batch)
      return fmt::format(" in epoch {}", epoch + 1);
  return {};
}

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

/// Each of the workers that share a batch has a sample for every micro-batch. Those that only add gradients up may have no samples at all.
void validate_micro_batches(const Recipe& recipe, std::int64_t sharing) {
  const ParallelConfig& parallel = recipe.parallel;
  const std::int64_t batch = recipe.data.batch, parts = recipe.train.micro_batches, left = batch % sharing;
  const std::int64_t share = batch / sharing + (left > 0 && recipe.data.uneven == "pad" ? 1 : 0);
  const std::int64_t all = parallel.workers > 0 ? parallel.workers : parallel.workers_of_mesh();
  const bool pipelined = comm::resolved(parallel.mesh(), static_cast<int>(all)).pipeline > 1;
  const std::int64_t most = pipelined ? share : std::max<std::int64_t>(share, 1);
  if (parts <= most) return;
  const bool is_refused_anyway = left > 0 && recipe.data.uneven == "refuse";  // by shared_batch()
  const std::string remedy =
      most == 0 || is_refused_anyway ? fmt::format("data.batch={}", sharing * parts) : fmt::format("train.micro_batches={}", most);
  if (sharing == 1) throw ConfigError(fmt::format("train.micro_batches={} is more than data.batch={}; use {}", parts, batch, remedy));
  const char* whose = left > 0 && recipe.data.uneven != "pad" ? "the smallest share" : "each share";
  throw ConfigError(fmt::format("train.micro_batches={} is more than the {} in {} of data.batch={} on {} {}; use {}", parts,
                                plural(share, "sample"), whose, batch, sharing,
                                pipelined       ? "pipelines"
                                : sharing < all ? "groups of workers"
                                                : "workers",
                                remedy));
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
  validate_micro_batches(recipe, sharing);
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

}  // namespace paceline::train
