#include "paceline/train/memory_plan.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/affinity.h"
#include "paceline/base/mesh_refusal.h"
#include "paceline/graph/tensor_split.h"
#include "paceline/graph/units.h"
#include "paceline/memory/fit.h"
#include "paceline/nn/attention.h"
#include "paceline/nn/onednn.h"
#include "paceline/schedule/pipeline.h"
#include "paceline/step/momentum.h"
#include "paceline/strategies/allreduce_choices.h"
#include "paceline/tensor/device.h"

namespace paceline::train {

namespace {

/// `threads`: of a rank on the CPU.
memory::Kernels kernels_of(bool gpu, int threads) {
  const bool attention = nn::has_attention_kernels();
  if (gpu) return {.attention = attention, .loss = true};
  const int block = nn::onednn_block();
  return {.columns = block == 0, .block = block, .attention = attention, .sums = std::int64_t{nn::product_sums()} * threads};
}

/// The number of threads that a rank computes with (train/workers.cpp).
int threads_of(const Recipe& recipe, std::int64_t ranks, const RunPlace& place) {
  if (recipe.train.threads > 0) return static_cast<int>(recipe.train.threads);
  const auto per_host = static_cast<int>((ranks + place.all_hosts - 1) / place.all_hosts);
  return std::max(1, usual_threads(usable_cores()) / per_host);
}

bool shares_updates(const Recipe& recipe, int workers, const RunPlace& place) {
  if (workers == 1 || !strategies::has_buckets(strategies::resolve(recipe.strategy.name, workers))) return false;
  return strategies::shares_updates(recipe.strategy, facts_of(recipe, workers, place));
}

/// The compression of a recipe. The network is unknown here, so codes are assumed to be as long as those of a square matrix.
memory::Compression compression_of(const Recipe& recipe, bool gpu) {
  constexpr std::int64_t kSide = 256;
  const compress::Compressor& compressor = find(compress::compressors(), "comm.compression", recipe.comm.compression).make;
  const compress::RangeLayout square{.parts = {{0, kSide * kSide, kSide, kSide}}, .length = kSide * kSide};
  const double wire_bytes = static_cast<double>(code_bytes(compressor, recipe.compress, square)) / static_cast<double>(square.length);
  if (!recipe.servers()) return held_by(compressor, recipe.compress, wire_bytes, gpu);
  // For a worker's pushes (ps/transports/push_coder.h); between threads of a process, gradients are not copied at all.
  return {.kept = recipe.ps.by_processes() ? 4.0 * (compressor.momentum_correction ? 2 : 1) + wire_bytes : 0};
}

}  // namespace

// The residual, the compressor's own momentum, and with dense codes the residual of the mean; then the codes that are sent and received.
// Values that can be added have their own memory for every bucket, except for values that a GPU rounds.
memory::Compression held_by(const compress::Compressor& compressor, const compress::CompressConfig& config, double wire_bytes, bool gpu) {
  memory::Compression held{.kept = compressor.momentum_correction ? 8.0 : 4.0};
  if (!compressor.coder) {
    (gpu && compressor.rounds_to ? held.codes : held.kept) += wire_bytes;
  } else if (compressor.coder(config)->averaging() == compress::Coder::Averaging::dense) {
    held.kept += 4, held.codes = 2 * wire_bytes;
  } else {
    held.codes = held.each = wire_bytes;
  }
  return held;
}

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
  plan.fp32_gradients = recipe.train.stored_gradients() == "fp32";
  plan.product = recipe.train.precision == "bf16" ? 2 : 4;
  plan.fp16 = recipe.train.storage == "fp16";
  const bool sends = plan.data > 1 || (recipe.servers() && recipe.ps.by_processes());  // gradients to other processes
  const optim::OptimConfig optimizer = sends ? step::optimizer_behind(recipe.comm.compression, recipe.optim) : recipe.optim;
  plan.moments = moments_of(optimizer);
  plan.recompute = recipe.train.recompute, plan.schedule = recipe.parallel.schedule, plan.sequence = recipe.parallel.sequence;
  plan.hybrid = recipe.parallel.hybrid;
  plan.bf16_gradients = recipe.comm.gradient_dtype == "bf16";
  plan.gpu = recipe.train.device.starts_with("cuda");
  plan.offload = recipe.parallel.offload;
  if (sends && recipe.comm.compression != "none") plan.compression = compression_of(recipe, plan.gpu);
  plan.kernels = kernels_of(plan.gpu, threads_of(recipe, ranks, place));
  plan.shared_updates = shares_updates(recipe, mesh.data, place);
  const auto& schedule = find(schedule::pipelines(), "parallel.schedule", recipe.parallel.schedule);
  if (mesh.pipeline > 1) plan.chunks = schedule::resolve_chunks(schedule, recipe.parallel.chunks);
  plan.limit = static_cast<std::int64_t>(recipe.train.memory_gb * 1e9);
  return plan;
}

namespace {

/// A run of this recipe with the mesh, stage and recomputation of `wanted`. ConfigError if it would be refused.
memory::Settled settled_as(const memory::Plan& wanted, const Recipe& recipe, const graph::Graph& graph, const RunFacts& run) {
  Recipe changed = on_mesh(recipe, {.data = wanted.data, .pipeline = wanted.pipeline, .tensor = wanted.tensor});
  changed.parallel.zero = wanted.zero, changed.train.recompute = wanted.recompute;
  validate(changed);
  check_network(changed, graph, changed.parallel.mesh(), run.own_loss);
  check_strategy(changed, name_of_divided(changed, graph), run.place);
  return {plan_of(changed, run.place), lacks_strategy(recipe, wanted.data) ? "strategy.name=auto" : ""};
}

/// Without train.memory_gb, only the clearly impossible is refused: the formulas are not exact.
memory::Limit limit_of(const Recipe& recipe, const RunPlace& place) {
  if (recipe.train.memory_gb > 0) return {.bytes = static_cast<std::int64_t>(recipe.train.memory_gb * 1e9), .source = "train.memory_gb"};
  const c10::Device device = tensor::parse_device(recipe.train.device);
  const std::int64_t machine = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  if (device.is_cpu()) return {.bytes = machine, .source = "this machine's memory", .places = place.all_hosts};
  const bool named = recipe.train.device.starts_with("cuda:");  // all ranks of a host use that GPU; otherwise they take turns
  return {
      .bytes = tensor::device_memory(device), .source = "the GPU's memory", .places = place.all_hosts * (named ? 1 : tensor::gpu_count())};
}

}  // namespace

void check_network(const Recipe& recipe, const graph::Graph& graph, const comm::MeshSizes& mesh, bool own_loss) {
  if (recipe.parallel.sequence && mesh.tensor == 1)
    throw MeshRefusal(
        "parallel.sequence=true splits positions among the workers of the tensor axis, and there is only one; leave it out, or use ",
        "parallel.tensor=2");
  if (own_loss && mesh.tensor > 1 && graph::tensor_split(graph, mesh.tensor, recipe.parallel.sequence).splits_logits(graph))
    throw MeshRefusal(
        fmt::format("parallel.tensor={} splits the logits of network '{}' among workers, which a loss of this program's own cannot read; "
                    "use ",
                    mesh.tensor, graph.network()),
        "parallel.tensor=1");
  const bool by_unit = recipe.train.recompute != "none" || (recipe.parallel.zero == 3 && mesh.data > 1);
  if (by_unit && graph::units_of(graph).size() == 1)
    throw ConfigError(
        fmt::format("train.recompute and parallel.zero=3 go through a network unit by unit, but '{}' is a single unit here; use "
                    "train.recompute=none and "
                    "parallel.zero=2",
                    graph.network()));
}

bool lacks_strategy(const Recipe& recipe, int workers) { return workers > 1 && strategies::is_alone(recipe.strategy.name); }

Recipe on_mesh(Recipe recipe, const comm::MeshSizes& mesh) {
  recipe.parallel.data = mesh.data, recipe.parallel.pipeline = mesh.pipeline, recipe.parallel.tensor = mesh.tensor;
  recipe.parallel.workers = recipe.parallel.workers_of_mesh();
  if (lacks_strategy(recipe, mesh.data)) recipe.strategy.name = strategies::kAuto;
  recipe.strategy.name = strategies::resolve(recipe.strategy.name, mesh.data);
  return recipe;
}

std::string name_of_divided(const Recipe& recipe, const graph::Graph& graph) {
  const auto is_spread = [](const graph::Parameter& parameter) { return parameter.spread; };
  return recipe.parallel.hybrid != "none" || std::ranges::any_of(graph.parameters(), is_spread) ? graph.network() : "";
}

void check_strategy(const Recipe& recipe, const std::string& divided, const RunPlace& place) {
  if (!strategies::has_buckets(recipe.strategy.name)) return;
  strategies::AllreduceFacts facts = facts_of(recipe, static_cast<int>(recipe.parallel.data), place);
  facts.private_entry = divided;
  choose(recipe.strategy, facts);
}

void require_memory(const Recipe& recipe, const graph::Graph& graph, const memory::Plan& plan, const RunFacts& run,
                    const std::vector<graph::Units>& stages) {
  const memory::Limit limit = limit_of(recipe, run.place);
  const auto settle = [&](const memory::Plan& wanted) { return settled_as(wanted, recipe, graph, run); };
  if (limit.bytes > 0) memory::require_fit(graph, plan, limit, stages, settle);
}

void require_memory(const Recipe& recipe, nn::Model& model, const memory::Plan& plan, const RunFacts& run) {
  const memory::Limit limit = limit_of(recipe, run.place);
  const std::int64_t allowed = limit.of_rank(plan.ranks()), parameters = model.arena().length() / plan.pipeline;
  std::int64_t largest = 0;  // entry, all of which is in one bucket
  for (const tensor::Entry& entry : model.arena().entries()) largest = std::max(largest, entry.count);
  const std::int64_t bucket = plan.gpu ? parameters : std::min(parameters, std::max(plan.bucket / 4, largest));
  const std::int64_t kept = plan.compression.bytes(parameters, bucket, plan.data);
  // Ranks hold these for all parameters or, from some ZeRO stage on, for their part.
  const auto bytes_in = [&](int stage) {
    const auto part = [&](bool shared) { return shared ? parameters / plan.data : parameters; };
    return 4 * (part(stage >= 3) + part(stage >= 2) + plan.moments * part(stage >= 1 || plan.shared_updates)) + kept;
  };
  const std::int64_t bytes = bytes_in(plan.zero);
  if (limit.bytes <= 0 || bytes <= allowed) return;
  const int last_stage = model.units().size() > 1 ? 3 : 2;  // the third gathers unit by unit
  int stage = plan.zero;
  const bool shards = kept == 0 && strategies::has_buckets(strategies::resolve(recipe.strategy.name, plan.data));
  while (shards && stage < last_stage && bytes_in(stage) > allowed) ++stage;
  throw ConfigError(fmt::format(
      "the parameters, gradients and moments of this program's module{} take {} on each of {} ranks, but {} allows {}; use {}",
      kept > 0 ? ", with what comm.compression holds," : "", memory::readable(bytes), plan.ranks(), limit.source, memory::readable(allowed),
      bytes_in(stage) <= allowed ? fmt::format("parallel.zero={}", stage)
      : shards                   ? fmt::format("parallel.zero={} on more ranks, or a smaller module", last_stage)
      : kept > 0                 ? "comm.compression=none, or a smaller module"
                                 : "strategy.name=allreduce with parallel.zero, or a smaller module"));
}

}  // namespace paceline::train
