#include "paceline/train/memory_plan.h"

#include <ATen/Context.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/graph/tensor_split.h"
#include "paceline/graph/units.h"
#include "paceline/memory/fit.h"
#include "paceline/nn/attention.h"
#include "paceline/schedule/pipeline.h"
#include "paceline/strategies/allreduce_choices.h"
#include "paceline/tensor/device.h"

namespace paceline::train {

namespace {

memory::Kernels kernels_of(bool gpu) {
  return {.columns = !gpu && !(at::hasMKLDNN() && tensor::onednn_pays()), .attention = nn::has_attention_kernels(), .loss = gpu};
}

bool shares_updates(const Recipe& recipe, int workers, const RunPlace& place) {
  if (workers == 1 || !strategies::has_buckets(strategies::resolve(recipe.strategy.name, workers))) return false;
  // Assumptions for a GPU that this machine may not have.
  if (recipe.train.device.starts_with("cuda")) return recipe.strategy.update == "sharded";
  return strategies::shares_updates(recipe.strategy, facts_of(recipe, workers, place));
}

}  // namespace

memory::Plan plan_of(const Recipe& recipe, const RunPlace& place) {
  const std::int64_t ranks = std::max<std::int64_t>(recipe.parallel.workers, recipe.parallel.workers_of_mesh());
  const comm::MeshSizes mesh = comm::resolved(recipe.parallel.mesh(), static_cast<int>(ranks));
  memory::Plan plan;
  plan.data = mesh.data, plan.pipeline = mesh.pipeline, plan.tensor = mesh.tensor, plan.zero = static_cast<int>(recipe.parallel.zero);
  plan.samples = std::max<std::int64_t>((recipe.data.batch + mesh.data - 1) / mesh.data, 1);
  plan.batch = recipe.data.batch;
  plan.micro_batches = std::min(recipe.train.micro_batches, plan.samples);
  if (recipe.strategy.bucket_mb > 0) plan.bucket = static_cast<std::int64_t>(recipe.strategy.bucket_mb * (1 << 20));
  plan.storage = recipe.train.storage == "fp32" ? 4 : 2;
  plan.product = recipe.train.precision == "bf16" ? 2 : 4;
  plan.moments = static_cast<int>(optim::make_optimizer(recipe.optim)->state_names().size());
  plan.recompute = recipe.train.recompute, plan.schedule = recipe.parallel.schedule, plan.sequence = recipe.parallel.sequence;
  plan.hybrid = recipe.parallel.hybrid;
  plan.bf16_gradients = recipe.comm.gradient_dtype == "bf16";
  plan.gpu = recipe.train.device.starts_with("cuda");
  plan.offload = recipe.parallel.offload;
  plan.kernels = kernels_of(plan.gpu);
  plan.shared_updates = shares_updates(recipe, mesh.data, place);
  const auto& schedule = find(schedule::pipelines(), "parallel.schedule", recipe.parallel.schedule);
  if (mesh.pipeline > 1) plan.chunks = schedule::resolve_chunks(schedule, recipe.parallel.chunks);
  plan.limit = static_cast<std::int64_t>(recipe.train.memory_gb * 1e9);
  return plan;
}

namespace {

/// A run of this recipe with the mesh, stage and recomputation of `wanted`. ConfigError if it would be refused.
memory::Settled settled_as(const memory::Plan& wanted, const Recipe& recipe, const graph::Graph& graph, const RunFacts& run) {
  Recipe changed = recipe;
  changed.parallel.data = wanted.data, changed.parallel.pipeline = wanted.pipeline, changed.parallel.tensor = wanted.tensor;
  changed.parallel.workers = wanted.ranks(), changed.parallel.zero = wanted.zero, changed.train.recompute = wanted.recompute;
  // Whether the recipe asked for one worker's strategy, or `auto` resolved to it, is no longer known.
  const bool alone = wanted.data > 1 && strategies::is_alone(recipe.strategy.name);
  if (alone) changed.strategy.name = strategies::resolve(strategies::kAuto, wanted.data);
  validate(changed);
  check_network(changed, graph, {.data = wanted.data, .pipeline = wanted.pipeline, .tensor = wanted.tensor}, run.own_loss);
  if (strategies::has_buckets(changed.strategy.name)) {
    strategies::AllreduceFacts facts = facts_of(changed, wanted.data, run.place);
    const auto is_spread = [](const graph::Parameter& parameter) { return parameter.spread; };
    if (changed.parallel.hybrid != "none" || std::ranges::any_of(graph.parameters(), is_spread)) facts.private_entry = graph.network();
    choose(changed.strategy, facts);
  }
  return {plan_of(changed, run.place), alone ? "strategy.name=auto" : ""};
}

}  // namespace

void check_network(const Recipe& recipe, const graph::Graph& graph, const comm::MeshSizes& mesh, bool own_loss) {
  if (recipe.parallel.sequence && mesh.tensor == 1)
    throw ConfigError(
        "parallel.sequence=true splits positions among the workers of the tensor axis, and there is only one; set parallel.tensor, or "
        "leave it out");
  if (own_loss && mesh.tensor > 1 && graph::tensor_split(graph, mesh.tensor, recipe.parallel.sequence).splits_logits(graph))
    throw ConfigError(fmt::format(
        "parallel.tensor={} splits the logits of network '{}' among workers, which a loss of this program's own cannot read; use "
        "parallel.tensor=1",
        mesh.tensor, graph.network()));
  const bool by_unit = recipe.train.recompute != "none" || (recipe.parallel.zero == 3 && mesh.data > 1);
  if (by_unit && graph::units_of(graph).size() == 1)
    throw ConfigError(
        fmt::format("train.recompute and parallel.zero=3 go through a network unit by unit, but '{}' is a single unit here; use "
                    "train.recompute=none and "
                    "parallel.zero=2",
                    graph.network()));
}

void require_memory(const Recipe& recipe, const graph::Graph& graph, const memory::Plan& plan, const RunFacts& run,
                    const std::vector<graph::Units>& stages) {
  const auto settle = [&](const memory::Plan& wanted) { return settled_as(wanted, recipe, graph, run); };
  if (plan.limit > 0) return memory::require_fit(graph, plan, plan.limit, "train.memory_gb", stages, settle);
  // Without an explicit limit, only the clearly impossible is refused: the formulas are not exact, and the ranks may be on many hosts.
  const std::int64_t machine = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  if (tensor::parse_device(recipe.train.device).is_cpu() && machine > 0)
    memory::require_fit(graph, plan, machine, "this machine's memory", stages, settle);
}

}  // namespace paceline::train
