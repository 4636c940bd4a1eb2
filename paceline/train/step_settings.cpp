#include "paceline/train/step_settings.h"

#include <algorithm>
#include <numeric>

#include "paceline/central/local_worker.h"
#include "paceline/graph/tensor_split.h"
#include "paceline/optim/optimizer.h"
#include "paceline/perf/program_model.h"
#include "paceline/schedule/cost.h"
#include "paceline/schedule/pipeline.h"
#include "paceline/strategies/allreduce_choices.h"
#include "paceline/strategies/served.h"
#include "paceline/tensor/device.h"
#include "paceline/train/memory_plan.h"

namespace paceline::train {
namespace {

using schedule::CompressedTraffic;
using schedule::ProgramSettings;

/// The arena as one range: the code of a bucket is taken as its share of the code of the arena.
compress::RangeLayout layout_of(const graph::Graph& graph) {
  compress::RangeLayout layout;
  for (const graph::Parameter& parameter : graph.parameters()) {
    if (!parameter.trainable) continue;
    const std::int64_t whole = graph::elements(parameter.shape), all = parameter.shape.size() >= 2 ? parameter.shape[0] : 1;
    const std::int64_t fitting = (kMostCoded - layout.length) / std::max<std::int64_t>(whole / std::max<std::int64_t>(all, 1), 1);
    const std::int64_t rows = std::min(all, fitting), count = all > 0 ? whole / all * rows : 0;
    if (count == 0) break;
    layout.parts.push_back({layout.length, count, rows, count / std::max<std::int64_t>(rows, 1)});
    layout.length += count;
  }
  return layout;
}

std::int64_t round_bytes(const compress::Round& round) { return round.count * (round.type == compress::Round::Type::f32 ? 4 : 2); }

void set_compression(const Recipe& recipe, const graph::Graph& graph, ProgramSettings& settings) {
  if (settings.data == 1 || recipe.comm.compression == "none") {
    if (settings.data > 1 && recipe.comm.gradient_dtype == "bf16")
      settings.compressed = CompressedTraffic::rounded, settings.wire_bytes = 2;
    return;
  }
  const compress::Compressor& row = find(compress::compressors(), "comm.compression", recipe.comm.compression).make;
  const compress::RangeLayout layout = layout_of(graph);
  const auto bytes = static_cast<double>(code_bytes(row, recipe.compress, layout));
  if (row.linear) {
    settings.compressed = CompressedTraffic::averaged;
    settings.compressed_rounds = row.linear(recipe.compress, {}, 0)->rounds();
  } else {
    const bool dense = row.coder(recipe.compress)->averaging() == compress::Coder::Averaging::dense;
    settings.compressed = dense ? CompressedTraffic::dense : CompressedTraffic::sparse;
  }
  settings.wire_bytes = bytes / static_cast<double>(std::max<std::int64_t>(layout.length, 1));
}

/// By rank of the pipeline: first and last unit of its chunks.
std::vector<std::vector<int>> held_units(const graph::Graph& graph, const memory::Plan& plan, std::vector<graph::Units> stages) {
  if (plan.pipeline == 1) return {};
  if (stages.empty()) stages = memory::cut_stages(graph, plan);
  std::vector<std::vector<int>> held(static_cast<std::size_t>(plan.pipeline));
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    held[stage % held.size()].insert(held[stage % held.size()].end(),
                                     {static_cast<int>(stages[stage].first), static_cast<int>(stages[stage].last)});
  return held;
}

}  // namespace

int moments_of(const optim::OptimConfig& optimizer) { return static_cast<int>(optim::make_optimizer(optimizer)->state_names().size()); }

std::int64_t code_bytes(const compress::Compressor& compressor, const compress::CompressConfig& config,
                        const compress::RangeLayout& layout) {
  if (!compressor.linear) return compressor.coder(config)->bound(layout);
  const auto linear = compressor.linear(config, layout, 0);
  const std::vector<float> nothing(static_cast<std::size_t>(layout.length));
  std::int64_t bytes = 0;
  for (int round = 0; round < linear->rounds(); ++round) bytes += round_bytes(linear->round(round, nothing.data()));
  return bytes;
}

strategies::AllreduceFacts facts_of(const Recipe& recipe, int workers, const RunPlace& place) {
  return {.workers = workers,
          .hosts = place.hosts,
          // A plan may be for a GPU that this machine does not have.
          .on_cpu = !recipe.train.device.starts_with("cuda") && tensor::parse_device(recipe.train.device).is_cpu(),
          .direct_sums = place.shares_memory && schedule::runs_in_shared_memory(recipe.comm.algorithm),
          .shaped = recipe.comm.shapes(),
          .repeatable = recipe.train.repeatable,
          .elementwise = optim::make_optimizer(recipe.optim)->elementwise(),
          .clips = recipe.optim.clip_norm > 0,
          .scales_loss = recipe.train.stored_gradients() == "fp16",
          .zero = workers > 1 ? static_cast<int>(recipe.parallel.zero) : 0,
          .compression = recipe.comm.compression,
          .bf16_gradients = recipe.comm.gradient_dtype == "bf16"};
}

std::vector<schedule::Program> RecipeStep::programs(const ProgramSettings& chosen) const {
  if (served) return strategies::served_step(model, chosen, {.departs = departs});
  return find(strategies::strategies(), "strategy", strategy).make.program(model, chosen);
}

std::vector<schedule::Program> RecipeStep::programs_between(const ProgramSettings& chosen) const {
  if (served) return strategies::served_step(model, chosen, {.pulls = false, .pushes = false, .departs = departs});
  return find(strategies::strategies(), "strategy", strategies::kSingle).make.program(model, chosen);
}

std::vector<schedule::Program> RecipeStep::opening(const ProgramSettings& chosen) const {
  return strategies::served_step(model, chosen, {.pushes = false, .departs = departs});
}

std::vector<schedule::Program> RecipeStep::closing(const ProgramSettings& chosen) const {
  return strategies::served_step(model, chosen, {.pulls = false, .departs = departs});
}

RecipeStep step_of(const Recipe& recipe, const graph::Graph& graph, const RunPlace& place, const std::vector<graph::Units>& stages) {
  const auto servers = recipe.servers();
  const bool served = servers.has_value();
  Recipe shaped = recipe;
  if (served) shaped.parallel.data = shaped.parallel.workers, shaped.parallel.pipeline = shaped.parallel.tensor = 1;
  const memory::Plan plan = plan_of(shaped);
  ProgramSettings settings;
  settings.data = plan.data, settings.pipeline = plan.pipeline, settings.tensor = plan.tensor;
  settings.zero = plan.data > 1 ? plan.zero : 0;
  settings.samples = plan.samples, settings.micro_batches = plan.micro_batches;
  settings.schedule = plan.schedule, settings.chunks = plan.chunks, settings.stages = held_units(graph, plan, stages);
  settings.recompute = plan.recompute;
  settings.clips = recipe.optim.clip_norm > 0, settings.adapts = !optim::make_optimizer(recipe.optim)->elementwise();
  settings.storage_bytes = plan.storage, settings.fp32_gradients = plan.fp32_gradients, settings.activation_bytes = plan.product;
  settings.wire_bytes = static_cast<double>(plan.gradient());
  settings.algorithm = recipe.comm.algorithm;
  settings.staleness = recipe.strategy.staleness, settings.servers = static_cast<int>(recipe.ps.servers);
  set_compression(recipe, graph, settings);

  RecipeStep step;
  step.strategy = strategies::resolve(recipe.strategy.name, plan.data);
  if (served) {
    const auto rule = ps::make_rule({servers->ps, recipe.optim, servers->workers});
    const central::Duties duties(servers->ps, *rule);
    step.served = true, step.period = duties.period, step.departs = duties.departs();
  } else if (plan.data > 1) {
    step.period = strategies::period_of(recipe.strategy);
  }
  step.model = perf::program_model(graph, {.data = served ? 1 : plan.data,
                                           .tensor = plan.tensor,
                                           .sequence = plan.sequence,
                                           .joint_norms = recipe.strategy.batch_norm == "sync" && !served,
                                           .hybrid = plan.hybrid,
                                           .batch = recipe.data.batch});
  if (!strategies::has_buckets(step.strategy)) {
    step.settings = {settings};
    return step;
  }
  const auto has_private = [](const schedule::ProgramModel::Unit& unit) { return unit.private_parameters() > 0; };
  strategies::AllreduceFacts facts = facts_of(recipe, settings.data, place);
  facts.tensor = settings.tensor;
  facts.private_entry = std::ranges::any_of(step.model.units, has_private) ? "experts" : "";
  facts.bytes = step.model.parameters() * 4;
  const strategies::AllreduceChoices choices = choose(recipe.strategy, facts);
  settings.sharded_update = choices.sharded, settings.update_at_end = choices.updates_at_end;
  for (const data_parallel::BucketPlan& cut : choices.cuts) {
    settings.bucket_bytes = cut.bytes, settings.overlap = cut.overlap, settings.by_unit = cut.by_unit;
    step.settings.push_back(settings);
  }
  return step;
}

}  // namespace paceline::train
