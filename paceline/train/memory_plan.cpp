#include "paceline/train/memory_plan.h"

#include <ATen/Context.h>
#include <unistd.h>

#include <algorithm>

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

void require_memory(const Recipe& recipe, const graph::Graph& graph, const memory::Plan& plan, const std::vector<graph::Units>& stages) {
  if (plan.limit > 0) return memory::require_fit(graph, plan, plan.limit, "train.memory_gb", stages);
  // Without an explicit limit, only the clearly impossible is refused: the formulas are not exact, and the ranks may be on many hosts.
  const std::int64_t machine = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  if (tensor::parse_device(recipe.train.device).is_cpu() && machine > 0)
    memory::require_fit(graph, plan, machine, "this machine's memory", stages);
}

}  // namespace paceline::train
