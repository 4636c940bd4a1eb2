#include "paceline/train/stage_cut.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/comm/engine.h"
#include "paceline/pipeline/costs.h"
#include "paceline/schedule/pipeline.h"

namespace paceline::train {
namespace {

bool measures(const Recipe& recipe) { return recipe.parallel.costs == "measured"; }

/// Samples of the data's shape, as many as in a micro-batch: their values do not affect how long a layer takes.
at::Tensor sample_inputs(const data::Info& info, const memory::Plan& plan, const c10::Device& device) {
  std::vector<std::int64_t> shape = {std::max<std::int64_t>(plan.samples / plan.micro_batches, 1)};
  shape.insert(shape.end(), info.input.begin(), info.input.end());
  return at::zeros(shape, at::TensorOptions().dtype(info.tokens ? at::kLong : at::kFloat).device(device));
}

/// Rank 0's measurements, sent to all, since no two ranks would measure the same.
template <class Measure>
std::vector<double> told_by_first(std::size_t units, comm::Communicator& everyone, const Measure& measure) {
  std::vector<double> times(units);
  if (everyone.rank() == 0) {
    const std::vector<graph::UnitCost> costs = measure();
    std::ranges::transform(costs, times.begin(), &graph::UnitCost::time);
  }
  everyone.run(comm::broadcast(times, {.deadline = comm::kUntilTheEnd}));
  return times;
}

RunFacts facts_of_run(const comm::Mesh& mesh, bool own_loss) {
  return {.place = {.hosts = mesh.data().topology().hosts,
                    .all_hosts = mesh.everyone().topology().hosts,
                    .shares_memory = comm::engine_of(mesh.data().engine()).shares_memory},
          .own_loss = own_loss};
}

}  // namespace

void check_schedule(const memory::Plan& plan) {
  schedule::check(find(schedule::pipelines(), "parallel.schedule", plan.schedule),
                  {.stages = plan.pipeline, .micro_batches = static_cast<int>(plan.micro_batches), .chunks = plan.chunks});
}

memory::Plan checked_plan(const Recipe& recipe, const graph::Graph& graph, const comm::MeshSizes& mesh, const RunFacts& run) {
  check_network(recipe, graph, mesh, run.own_loss);
  memory::Plan plan = plan_of(recipe, run.place);
  if (mesh.pipeline > 1) check_schedule(plan);
  return plan;
}

std::vector<nn::Units> cut_network(const Recipe& recipe, const graph::Graph& graph, const nn::GraphModule::Options& options,
                                   const data::Info& info, const comm::Mesh& mesh, const Clock& clock, bool own_loss) {
  if (recipe.servers()) return {};
  const RunFacts run = facts_of_run(mesh, own_loss);
  memory::Plan plan = checked_plan(recipe, graph, mesh.sizes(), run);
  if (mesh.pipeline().size() == 1) {
    require_memory(recipe, graph, plan, run);
    return {};
  }
  std::vector<nn::Units> stages = memory::cut_stages(graph, plan);
  require_memory(recipe, graph, plan, run, stages);
  if (!measures(recipe)) return stages;
  // With measured times another cut may be the fastest of those that fit; that one fits is already known.
  plan.times = told_by_first(graph::counted_costs(graph).size(), mesh.everyone(),
                             [&] { return pipeline::measured_costs(graph, options, sample_inputs(info, plan, options.device), clock); });
  return memory::cut_stages(graph, plan);
}

std::vector<nn::Units> cut_module(const Recipe& recipe, nn::Model& model, const data::Info& info, const comm::Mesh& mesh,
                                  const Clock& clock) {
  if (recipe.servers()) return {};
  const RunFacts run = facts_of_run(mesh, /*own_loss=*/true);
  const memory::Plan plan = plan_of(recipe, run.place);
  require_memory(recipe, model, plan, run);
  if (mesh.pipeline().size() == 1) return {};
  check_schedule(plan);
  std::vector<graph::UnitCost> costs = pipeline::counted_costs(model);
  if (measures(recipe)) {
    const std::vector<double> times = told_by_first(
        costs.size(), mesh.everyone(), [&] { return pipeline::measured_costs(model, sample_inputs(info, plan, model.device()), clock); });
    for (std::size_t unit = 0; unit < costs.size(); ++unit) costs[unit].time = times[unit];
  }
  // Makes every stage begin with a unit that has weights, so that every rank has something to train.
  std::vector<graph::UnitCost> groups;
  std::vector<std::size_t> begins;
  bool weights = false;
  for (std::size_t unit = 0; unit < costs.size(); ++unit) {
    const bool has = model.units()[unit].first_entry < model.units()[unit].last_entry;
    if (groups.empty() || (has && weights)) groups.push_back(costs[unit]), begins.push_back(unit);
    else groups.back().time += costs[unit].time;
    weights = weights || has;
  }
  begins.push_back(costs.size());
  std::vector<nn::Units> stages = graph::cut_stages(groups, {.ranks = plan.pipeline, .chunks = plan.chunks});
  for (nn::Units& stage : stages) stage = {begins[stage.first], begins[stage.last]};
  return stages;
}

}  // namespace paceline::train
