#include "paceline/train/planned.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "paceline/base/error.h"
#include "paceline/tensor/device.h"
#include "paceline/train/from_recipe.h"
#include "paceline/train/memory_plan.h"
#include "paceline/train/step_settings.h"

namespace paceline::train {
namespace {

perf::PlanStrategies strategies_of(const Recipe& recipe) {
  const auto row = [](const char* key) {
    return perf::PlanStrategy{.key = key, .programs = find(strategies::strategies(), "strategy", key).make.program};
  };
  perf::PlanStrategies made{.alone = row(strategies::kSingle), .together = row(strategies::kAllreduce)};
  for (const auto& [key, help, kind] : strategies::strategies()) {
    if (kind.gives_up.empty()) continue;
    strategies::StrategyConfig strategy = recipe.strategy;
    strategy.name = key;
    made.others.push_back({.key = std::string(key),
                           .programs = kind.program,
                           .asynchronous = strategies::is_asynchronous(strategy.name, recipe.ps),
                           .period = strategies::period_of(strategy),
                           .remark = std::string(kind.gives_up)});
  }
  return made;
}

/// Whether some gradients have shorter codes than others of the same size: nothing to say, after every warm-up.
bool codes_vary(const compress::Compressor& compressor, const compress::CompressConfig& config) {
  if (!compressor.coder) return false;
  constexpr std::int64_t kLength = 1 << 14;
  const compress::RangeLayout layout{.parts = {{0, kLength, 1, kLength}}, .length = kLength};
  const auto coder = compressor.coder(config);
  std::vector<float> nothing(kLength);
  std::vector<std::byte> code(static_cast<std::size_t>(coder->bound(layout)));
  return coder->encode(layout, nothing.data(), {.epoch = 1e6}, code.data()) < coder->bound(layout);
}

/// Gradients in bf16, and every compressor that works with such a run, with how much it sends. For a network too large to encode here, the
/// bytes per element of a small one are used; low-rank compressors, whose codes depend on the shapes, are then left out.
std::vector<perf::OtherWire> wires_of(const Recipe& recipe, const graph::Graph& network, std::int64_t workers, bool gpu) {
  std::vector<perf::OtherWire> wires;
  if (workers < 2) return wires;
  const bool large = network.parameter_count() > kMostCoded;
  const graph::Graph graph = large ? graph::make_graph({}) : network;
  Recipe tried = recipe;
  tried.parallel = {}, tried.strategy = {}, tried.train.micro_batches = 1;
  tried.strategy.name = strategies::kAllreduce, tried.parallel.workers = workers, tried.data.batch = std::max(tried.data.batch, workers);
  const auto add = [&](const perf::OtherWire& wire, const compress::Compressor* compressor = nullptr) {
    try {
      validate(tried);
      const schedule::ProgramSettings settings = step_of(tried, graph).settings.front();
      const int moments = plan_of(tried).moments;
      if (large && settings.compressed_rounds > 1) return;
      wires.push_back(wire);
      wires.back().bytes = settings.wire_bytes, wires.back().traffic = settings.compressed,
      wires.back().rounds = settings.compressed_rounds;
      wires.back().moments = moments;
      if (compressor) wires.back().holds = held_by(*compressor, recipe.compress, settings.wire_bytes, gpu);
    } catch (const ConfigError&) {  // it does not work with the recipe
    }
  };
  tried.comm.compression = "none", tried.comm.gradient_dtype = "bf16";
  add({.by_value = true});
  tried.comm.gradient_dtype = "fp32";
  for (const auto& entry : compress::compressors()) {
    tried.comm.compression = entry.key;
    add({.compression = std::string(entry.key),
         .at_most = codes_vary(entry.make, recipe.compress),
         .by_value = entry.make.rounds_to.has_value()},
        &entry.make);
  }
  return wires;
}

perf::Precision precision_of(const Recipe& recipe) { return perf::precision_named(recipe.train.precision); }

/// The memory of each worker, if workers share a host's; 0: what the cluster says of its devices.
std::int64_t machine_memory(const Recipe& recipe, const RunHosts& hosts) {
  if (!tensor::parse_device(recipe.train.device).is_cpu()) return 0;
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE) / std::max(hosts.workers_per_host, 1);
}

/// Measured seconds, scaled by how much the roofline changes with the device.
class ScaledTimes final : public perf::ComputeTimes {
 public:
  ScaledTimes(std::unique_ptr<perf::ComputeTimes> measured, std::unique_ptr<perf::ComputeTimes> before,
              std::unique_ptr<perf::ComputeTimes> after)
      : measured_(std::move(measured)), before_(std::move(before)), after_(std::move(after)) {}

  double seconds(const schedule::Action& action, std::int64_t samples) const override {
    const double before = before_->seconds(action, samples);
    return measured_->seconds(action, samples) * (before > 0 ? after_->seconds(action, samples) / before : 1);
  }
  double around_seconds(std::int64_t samples) const override { return measured_->around_seconds(samples); }
  perf::Doubt doubt(std::span<const std::int64_t> samples) const override {
    return {.share = before_->doubt(samples).share, .notes = measured_->doubt(samples).notes};
  }

 private:
  std::unique_ptr<perf::ComputeTimes> measured_, before_, after_;
};

std::int64_t workers_per_host(const PlanInputs& inputs) { return std::min(inputs.workers, inputs.machine.cluster.devices); }

perf::MakeTimes times_of(const Recipe& recipe, const graph::Graph& graph, const PlanInputs& inputs) {
  if (!inputs.machine.profile) return nullptr;
  const perf::Precision precision = precision_of(recipe);
  const double storage = recipe.train.storage == "fp32" ? 4 : 2;
  const int moments = moments_of(recipe.optim);
  return [&recipe, &graph, &inputs, precision, storage, moments](const perf::Device& device,
                                                                 const perf::Choice& choice) -> std::unique_ptr<perf::ComputeTimes> {
    const perf::RooflineSettings settings{.tensor = choice.program.tensor,
                                          .sequence = choice.sequence,
                                          .precision = precision,
                                          .storage_bytes = storage,
                                          .fp32_gradients = recipe.train.stored_gradients() == "fp32",
                                          .moments = choice.moments.value_or(moments),
                                          .compression = choice.coder()};
    auto measured = measured_times(recipe, graph, inputs.machine, settings, workers_per_host(inputs));
    if (device == inputs.machine.cluster.device) return measured;
    return std::make_unique<ScaledTimes>(std::move(measured),
                                         std::make_unique<perf::RooflineTimes>(graph, inputs.machine.cluster.device, settings),
                                         std::make_unique<perf::RooflineTimes>(graph, device, settings));
  };
}

/// The correction from earlier runs of a choice.
void add_steps(perf::PlanQuestion& question, const Recipe& recipe, const graph::Graph& graph, const PlanInputs& inputs) {
  if (inputs.steps.empty()) return;
  const auto per_host = static_cast<int>(std::min(question.workers, inputs.machine.cluster.devices));
  const auto hosts = static_cast<int>((question.workers + per_host - 1) / per_host);
  const RunHosts where{.hosts = hosts, .workers_per_host = per_host, .place = {.hosts = hosts}};
  const auto known = std::make_shared<StepCorrection>(
      graph, inputs.steps, [&graph, &inputs, where](const Recipe& run) { return model_cost(run, graph, inputs.machine, where).seconds; });
  const auto resolved = [recipe](const perf::Choice& choice) {
    Recipe made = with_choice(recipe, choice);
    made.strategy.name = strategies::resolve(made.strategy.name, choice.program.data);
    return made;
  };
  question.correction = [known, resolved](const perf::Choice& choice) {
    try {
      return known->factor(resolved(choice));
    } catch (const ConfigError&) {  // the recipe does not allow this choice
      return 1.0;
    }
  };
  question.measured = [known, resolved](const perf::Choice& choice) -> std::optional<double> {
    try {
      return known->seconds(resolved(choice));
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  };
}

}  // namespace

perf::PlanQuestion plan_question(const Recipe& recipe, const graph::Graph& graph, const PlanInputs& inputs) {
  Recipe one = recipe;
  one.parallel = {}, one.strategy = {};
  const memory::Plan plan = plan_of(one);
  perf::PlanQuestion question;
  question.graph = &graph;
  question.cluster = inputs.machine.cluster;
  question.crowd = inputs.machine.crowd;
  question.workers = inputs.workers > 0 ? inputs.workers : inputs.machine.cluster.processes();
  question.batch = recipe.data.batch;
  question.memory = plan.limit;
  question.storage = plan.storage, question.fp32_gradients = plan.fp32_gradients;
  question.fp16 = plan.fp16, question.product = plan.product, question.moments = plan.moments;
  question.precision = precision_of(recipe);
  question.strategies = strategies_of(recipe);
  question.strategies.wires = wires_of(recipe, graph, question.workers, question.cluster.device.kind == "gpu");
  question.times = times_of(recipe, graph, inputs);
  if (inputs.machine.profile) question.jitter = jitter_of(table_for(inputs.machine, precision_of(recipe), workers_per_host(inputs)));
  add_steps(question, recipe, graph, inputs);
  return question;
}

Recipe with_settings(const Recipe& recipe, const std::vector<std::string>& settings) {
  Recipe made = recipe;
  made.parallel = {}, made.strategy.name = strategies::kAuto;
  Config config = made.config();
  for (const std::string& word : settings) config.set(word);
  made.parallel.workers = recipe.parallel.workers;
  validate(made);
  return made;
}

Recipe with_choice(const Recipe& recipe, const perf::Choice& choice) {
  Recipe made = recipe;
  made.parallel.workers = choice.workers();
  return with_settings(made, perf::settings_of(choice));
}

bool is_exact(const Recipe& recipe) {
  if (recipe.comm.compression != "none" || recipe.comm.gradient_dtype == "bf16") return false;
  if (strategies::makes_steps_together(recipe.strategy.name)) return true;
  const auto servers = recipe.servers();
  return servers && !servers->asynchronous() && !servers->has_stale_gradients();
}

void require_plannable(const Recipe& recipe, const Workload& workload) {
  if (recipe.strategy.name == strategies::kPlan && workload.model)
    throw ConfigError(
        "strategy.name=plan needs the layers of one of Paceline's own networks, but this program has its own module; use "
        "strategy.name=auto and choose parallel.data, parallel.pipeline and parallel.zero yourself");
}

perf::Plan plan_for(const Recipe& recipe, const data::Info& info, const RunHosts& hosts) {
  const graph::Graph graph = graph_for(recipe.model, info);
  const PlanInputs inputs{.machine = predicted_machine(recipe, graph, hosts),
                          .workers = recipe.parallel.workers,
                          .steps = perf::read_steps(perf::steps_file(predicted_source(recipe)))};
  perf::PlanQuestion question = plan_question(recipe, graph, inputs);
  if (recipe.train.memory_gb <= 0) question.memory = machine_memory(recipe, hosts);
  std::string refused;
  for (const perf::Plan& plan : perf::make_plans(question).exact) try {
      with_choice(recipe, plan.choice);
      return plan;
    } catch (const ConfigError& error) {  // the plan is incompatible with the recipe
      if (refused.empty()) refused = error.what();
    }
  throw ConfigError(fmt::format("strategy.name=plan: this recipe allows no plan; the first one was refused: {}", refused));
}

}  // namespace paceline::train
