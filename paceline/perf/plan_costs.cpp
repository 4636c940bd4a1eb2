#include "paceline/perf/plan_costs.h"

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/graph/units.h"
#include "paceline/memory/fit.h"
#include "paceline/perf/period.h"
#include "paceline/perf/plan_space.h"
#include "paceline/perf/program_model.h"
#include "paceline/perf/roofline_times.h"
#include "paceline/schedule/pipeline.h"

namespace paceline::perf {
namespace {

using schedule::Action;

constexpr std::int64_t kLeastRound = 8;  // micro-batches: with fewer, a short pipeline may not have settled
constexpr std::size_t kKeptSteps = 64;   // choices whose plays are kept: a search returns to a choice after a while
constexpr double kSamples = 1e6;         // device-hours and money are given per this many samples

void twice(Quantity& quantity) { quantity.value *= 2; }

/// Variants of the cluster in which one part is twice as fast, by the part's name; the first is the cluster itself.
std::vector<std::pair<std::string, Cluster>> faster_clusters(const Cluster& cluster) {
  std::vector<std::pair<std::string, Cluster>> made = {{"", cluster}};
  const auto add = [&](const std::string& name) -> Cluster& { return made.emplace_back(name, cluster).second; };
  Device& processor = add("processor").device;
  twice(processor.flops), twice(processor.tf32.flops), twice(processor.bf16.flops), twice(processor.fp16.flops);
  Device& memory = add("memory bandwidth").device;
  twice(memory.memory_bandwidth), twice(memory.update_bandwidth), twice(memory.reduce_bandwidth);
  if (cluster.devices > 1) twice(add(cluster.hosts > 1 ? "links inside hosts" : "links").inside.bandwidth);
  if (cluster.hosts > 1) twice(add(cluster.devices > 1 ? "links between hosts" : "links").between.bandwidth);
  if (cluster.hosts == 1 || cluster.devices == 1)  // then both classes are the same
    for (auto& [name, each] : made)
      if (name == "links") (cluster.devices > 1 ? each.between : each.inside) = cluster.devices > 1 ? each.inside : each.between;
  return made;
}

RooflineSettings roofline_settings(const PlanQuestion& question, const Choice& choice) {
  return {.tensor = choice.program.tensor,
          .sequence = choice.sequence,
          .precision = question.precision,
          .storage_bytes = static_cast<double>(question.storage),
          .fp32_gradients = question.fp32_gradients,
          .moments = choice.moments.value_or(question.moments),
          .compression = choice.coder()};
}

/// By rank of the pipeline: the first and last unit of each of its chunks, in pairs.
std::vector<std::vector<int>> by_rank(const std::vector<graph::Units>& stages, int ranks) {
  std::vector<std::vector<int>> made;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<int>& pairs = made.emplace_back();
    for (const graph::Units& units : graph::held_by(stages, ranks, rank))
      pairs.insert(pairs.end(), {static_cast<int>(units.first), static_cast<int>(units.last)});
  }
  return made;
}

}  // namespace

struct PlanCosts::Variant {
  Variant(std::string part, const Cluster& cluster, const Variant* first)
      : name(std::move(part)), model(first ? CostModel(cluster, first->model) : CostModel(cluster)) {}

  std::string name;
  CostModel model;
  mutable std::map<std::tuple<int, bool, std::string, int>, std::unique_ptr<ComputeTimes>> times = {};

  const ComputeTimes& times_of(const PlanQuestion& question, const Choice& choice) const {
    auto& found = times[{choice.program.tensor, choice.sequence, choice.coder(), choice.moments.value_or(question.moments)}];
    if (!found)
      found = question.times
                  ? question.times(model.cluster().device, choice)
                  : std::make_unique<RooflineTimes>(*question.graph, model.cluster().device, roofline_settings(question, choice));
    return *found;
  }
};

PlanCosts::PlanCosts(const PlanQuestion& question)
    : question_(question), memory_(*question.graph), units_(static_cast<int>(graph::units_of(*question.graph).size())) {
  for (auto& [name, cluster] : faster_clusters(question.cluster))
    variants_.push_back(std::make_unique<Variant>(name, cluster, variants_.empty() ? nullptr : variants_.front().get()));
}
PlanCosts::~PlanCosts() = default;

const schedule::ProgramModel& PlanCosts::model_of(const Choice& choice) const {
  const auto [found, missing] =
      models_.try_emplace({choice.program.tensor, choice.sequence, choice.hybrid, choice.hybrid == "none" ? 1 : choice.program.data});
  if (missing)
    found->second = program_model(*question_.graph, {.data = choice.program.data,
                                                     .tensor = choice.program.tensor,
                                                     .sequence = choice.sequence,
                                                     .hybrid = choice.hybrid,
                                                     .batch = question_.batch});
  return found->second;
}

std::optional<Plan> PlanCosts::fitted(Choice choice) const {
  // Other ways to send gradients need no less memory than the usual one, unless they save moments.
  const bool otherwise = choice.compression != "none" || choice.rounds();
  Choice usual = choice;
  usual.compression = "none", usual.program.compressed = schedule::CompressedTraffic::none;
  const std::vector<std::string> key = settings_of(usual);
  if (otherwise && choice.moments.value_or(question_.moments) >= question_.moments && too_large_.contains(key)) return std::nullopt;
  memory::Plan plan = memory_plan(question_, choice);
  const std::int64_t limit = memory_limit(question_);
  std::vector<graph::Units> stages = memory_.cut_stages(plan);
  std::vector<memory::RankKind> kinds = memory_.estimate(plan, stages);
  if (memory::largest(kinds).bytes.total() > limit && choice.program.pipeline > 1) {
    plan.limit = limit;
    stages = memory_.cut_stages(plan);
    kinds = memory_.estimate(plan, stages);
    choice.cut_gb = static_cast<double>(limit) / 1e9;
  }
  const memory::RankKind& most = memory::largest(kinds);
  if (most.bytes.total() > limit) {
    if (!otherwise) too_large_.insert(key);
    return std::nullopt;
  }
  if (choice.program.pipeline > 1) choice.program.stages = by_rank(stages, choice.program.pipeline);
  Plan made;
  made.choice = std::move(choice), made.rank = most.name, made.bytes = most.bytes;
  return made;
}

const CostModel& PlanCosts::model() const { return variants_.front()->model; }
const ComputeTimes& PlanCosts::times_of(const Choice& choice) const { return variants_.front()->times_of(question_, choice); }

const PlanStrategy& PlanCosts::strategy_of(const Choice& choice) const {
  const PlanStrategies& all = question_.strategies;
  const auto other = std::ranges::find(all.others, choice.strategy, &PlanStrategy::key);
  if (other != all.others.end()) return *other;
  return choice.strategy == all.alone.key ? all.alone : all.together;
}

std::vector<schedule::Program> PlanCosts::programs(const Choice& choice) const {
  return strategy_of(choice).programs(model_of(choice), choice.program);
}

PlanSteps& PlanCosts::steps_of(const Choice& choice) const {
  Choice folding = choice;
  folding.program.folds = CostModel::folds(question_.cluster, options_of(choice, /*splits=*/false));
  auto made = std::make_unique<PlanSteps>(folding, [this](const Choice& any) { return programs(any); });
  const bool by_stage = question_.cluster.device.page_bandwidth.value > 0;
  auto known = steps_.begin();
  if (known != steps_.end() && !made->same_as(**known, by_stage))
    known = std::find_if(std::next(known), steps_.end(), [&](const auto& steps) { return made->equals(*steps); });
  if (!steps_.empty() && known != steps_.begin()) steps_.front()->forget_programs();  // they are large
  if (known == steps_.end()) steps_.push_front(std::move(made));
  else steps_.splice(steps_.begin(), steps_, known);
  if (steps_.size() > kKeptSteps) steps_.pop_back();
  return *steps_.front();
}

CostOptions PlanCosts::options_of(const Choice& choice, bool splits) const {
  return {.jitter = question_.jitter, .asynchronous = strategy_of(choice).asynchronous, .crowd = question_.crowd, .splits = splits};
}

StepCost PlanCosts::model_cost(const Variant& variant, PlanSteps& steps, std::int64_t micro_batches, bool splits) const {
  const auto& [choice, stages] = steps.with(micro_batches);
  const ComputeTimes& times = variant.times_of(question_, choice);
  const PlanStrategy& strategy = strategy_of(choice);
  StepCost cost = variant.model.cost({stages, choice.program}, times, options_of(choice, splits), &steps.plays(variant.name));
  // Without a server, no gradients are stale: workers average with a neighbour's current replica.
  const auto visits = [](const schedule::Program& program) {
    return std::ranges::any_of(program, [](const Action& action) { return action.axis == Action::Axis::server; });
  };
  if (cost.staleness > 0 && std::ranges::none_of(stages, visits)) cost.staleness = 0;
  if (strategy.period <= 1) return cost;
  // Between meetings, every worker is on its own.
  const std::vector<schedule::Program> single = question_.strategies.alone.programs(model_of(choice), choice.program);
  const StepCost alone = variant.model.cost(single, choice.program, times, {.crowd = question_.crowd});
  return mean_over_period(cost, alone, strategy.period);
}

double PlanCosts::correction(const Choice& choice) const {
  if (!question_.correction) return 1;
  const auto [found, missing] = corrections_.try_emplace(settings_of(choice));
  if (missing) found->second = question_.correction(choice);
  return found->second;
}

std::optional<double> PlanCosts::estimate(const Plan& fitted) const {
  const schedule::ProgramSettings& program = fitted.choice.program;
  const std::int64_t fewer = 2 * program.pipeline, more = 3 * program.pipeline;
  if (question_.measured || program.micro_batches < 2 * more || program.samples % program.micro_batches != 0) return std::nullopt;
  PlanSteps& steps = steps_of(fitted.choice);
  const Variant& cluster = *variants_.front();
  const auto seconds = [&](std::int64_t micro_batches) {
    return steps.cost(cluster.name, micro_batches, /*splits=*/false, [&] { return model_cost(cluster, steps, micro_batches, false); })
        .seconds;
  };
  const double first = seconds(fewer), second = seconds(more);
  const auto each = (second - first) / static_cast<double>(more - fewer);
  return (second + static_cast<double>(program.micro_batches - more) * each) * correction(fitted.choice);
}

double PlanCosts::short_seconds(const Plan& fitted) const {
  PlanSteps& steps = steps_of(fitted.choice);
  const Variant& cluster = *variants_.front();
  const std::int64_t micro_batches = steps.shortest().choice.program.micro_batches;
  const auto played = [&] { return model_cost(cluster, steps, micro_batches, /*splits=*/false); };
  return steps.cost(cluster.name, micro_batches, /*splits=*/false, played).seconds * correction(fitted.choice);
}

std::optional<StepCost> PlanCosts::cost_of_longer(const Variant& variant, PlanSteps& steps, bool splits) const {
  const Choice& choice = steps.choice();
  const PlanStrategy& strategy = strategy_of(choice);
  if (strategy.asynchronous || strategy.period > 1 || !steps.has_shorter()) return std::nullopt;
  const schedule::ProgramSettings& program = choice.program;
  std::int64_t round = (kLeastRound + program.pipeline - 1) / program.pipeline * program.pipeline;
  if (splits && puts_off_weights(program)) round *= 2;  // the breakdown by stage settles later than the step's seconds
  const auto write = [&](std::int64_t micro_batches) {
    const PlanSteps::Step& step = steps.with(micro_batches);
    return CostModel::ShortStep{step.programs, step.choice.program};
  };
  return variant.model.cost_of_longer(write, program, variant.times_of(question_, choice), options_of(choice, splits), round,
                                      &steps.plays(variant.name));
}

StepCost PlanCosts::cost(const Variant& variant, const Choice& choice, bool splits) const {
  PlanSteps& steps = steps_of(choice);
  StepCost cost = steps.cost(variant.name, choice.program.micro_batches, splits, [&] {
    std::optional<StepCost> longer = cost_of_longer(variant, steps, splits);
    return longer ? std::move(*longer) : model_cost(variant, steps, choice.program.micro_batches, splits);
  });
  scale(cost, correction(choice));
  return cost;
}

void PlanCosts::add_seconds(Plan& plan) const {
  plan.cost = cost(*variants_.front(), plan.choice, /*splits=*/false);
  if (question_.measured) plan.measured_s = question_.measured(plan.choice).value_or(0);
}

void PlanCosts::add_cost(Plan& plan) const {
  const Variant& cluster = *variants_.front();
  const schedule::ProgramSettings& program = plan.choice.program;
  plan.cost = cost(cluster, plan.choice, /*splits=*/true);
  if (question_.measured) plan.measured_s = question_.measured(plan.choice).value_or(0);
  const auto workers = static_cast<double>(plan.choice.workers());
  plan.samples_per_s = strategy_of(plan.choice).asynchronous ? plan.cost.steps_per_s * static_cast<double>(program.samples)
                                                             : static_cast<double>(question_.batch) / plan.cost.seconds;
  // The same work on the same number of devices that do nothing but compute, in the largest possible parts or in those of this plan,
  // whichever is faster.
  Choice alone;
  alone.program.storage_bytes = program.storage_bytes, alone.program.fp32_gradients = program.fp32_gradients;
  const auto per_sample = [&](std::int64_t samples) {
    const std::int64_t whole = std::max<std::int64_t>(samples, 1);
    return pass_seconds(alone, whole, false) / static_cast<double>(whole);
  };
  // The plan's own computation never exceeds its step, even if runs of its kind deviated from the model, or parts of layers are faster.
  const double own = plan.cost.split.compute * workers / static_cast<double>(question_.batch);
  const double best = std::min(
      {own, per_sample(program.samples / program.micro_batches), per_sample(question_.batch / static_cast<std::int64_t>(workers))});
  plan.efficiency = best * plan.samples_per_s / workers;
  plan.device_hours = workers * kSamples / plan.samples_per_s / 3600;
  plan.money = plan.device_hours * question_.price;
  std::int64_t largest = 0;
  for (const schedule::Program& stage : steps_of(plan.choice).shortest().programs)  // which has all kinds of messages
    schedule::visit_parts(stage, [&](const Action& action) {
      if (action.kind != Action::Kind::communicate || action.axis != Action::Axis::data || action.elements <= largest ||
          action.exchange >= Action::Exchange::barrier)
        return;
      largest = action.elements;
      plan.algorithm = cluster.model.algorithm_of(action, program);
    });
}

void PlanCosts::add_gains(Plan& plan) const {
  plan.gains.clear();
  for (std::size_t i = 1; i < variants_.size(); ++i)
    plan.gains.push_back({variants_[i]->name, cost(*variants_[i], plan.choice, /*splits=*/false).seconds});
}

}  // namespace paceline::perf
