#include "paceline/measure/network_profile.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "paceline/measure/stopwatch.h"
#include "paceline/nn/masks.h"
#include "paceline/step/updater.h"
#include "paceline/tensor/device.h"

namespace paceline::measure {
namespace {

constexpr std::int64_t kLeastSteps = 3, kMostSteps = 100;
constexpr std::int64_t kStepsThatVary = 6;  // the smallest number of steps from which their variation is computed
constexpr double kLeastSeconds = 0.05;      // measure at least this long, so that short bursts of other programs do not dominate

/// Steps of one worker at one batch size, timed unit by unit.
class TimedSteps {
 public:
  TimedSteps(nn::Model& model, const nn::Loss& loss, step::Batch batch, std::vector<std::unique_ptr<step::Updater>>& updaters,
             const Clock& clock)
      : model_(model), loss_(loss), batch_(std::move(batch)), updaters_(updaters), clock_(clock), watch_(model.device(), clock) {
    if (model.takes_masks()) masks_ = nn::make_masks(model.device());
    pass_.masks = masks_.get();
    pass_.weight = batch_.weight(1);
    times_.resize(model.units().size());
    updates_.resize(updaters.size());
  }

  /// Repeats everything as often as requested, each kind of step several times in a row as in a run, because the preceding step determines
  /// what is in the caches and which memory the allocator returns. There are at least `updates` training steps, in which optimizers take
  /// turns. Returns the seconds of a training step.
  double steps(std::int64_t each, std::int64_t updates = 1) {
    const auto repeat = [&](void (TimedSteps::*step)(), std::int64_t count) {
      const Nanoseconds began = clock_.now();
      for (std::int64_t i = 0; i < count; ++i) {
        (this->*step)();
        tensor::synchronize(model_.device());
      }
      return seconds(clock_.now() - began) / static_cast<double>(count);
    };
    const double took = repeat(&TimedSteps::train_step, std::max(each, updates));
    ahead_ = model_.device().is_cuda() ? took : 0;  // longer than the host needs to enqueue any of the three
    repeat(&TimedSteps::split_step, each);
    repeat(&TimedSteps::evaluation_step, each);
    return took;
  }

  /// The relative variation of a step's passes: half the width of the middle two thirds. Interference makes some steps much longer, and
  /// these must not count.
  double jitter() const {
    std::vector<double> sorted = totals_;
    std::ranges::sort(sorted);
    const std::size_t sixth = sorted.size() / 6;
    return (sorted[sorted.size() - 1 - sixth] - sorted[sixth]) / 2 / sorted[sorted.size() / 2];
  }

  void forget() {
    totals_.clear();
    times_.assign(times_.size(), {});
    updates_.assign(updates_.size(), {});
  }

  /// Medians, by unit and pass, then by optimizer.
  std::vector<double> medians() const {
    std::vector<double> all;
    for (const UnitTimes& unit : times_)
      for (const std::vector<double>& pass : unit.of) all.push_back(median(pass));
    for (const std::vector<double>& update : updates_) all.push_back(median(update));
    return all;
  }

 private:
  enum Piece : std::uint8_t { forward, backward, input_gradients, weight_gradients, evaluation };
  struct UnitTimes {
    std::vector<double> of[5];
  };

  void forward_pass(nn::Trace& trace, nn::Scored& scored) {
    nn::Tensors tensors = {batch_.inputs};
    for (std::size_t unit = 0; unit < times_.size(); ++unit) {
      if (unit > 0) watch_.mark();
      tensors = model_.run({unit, unit + 1}, std::move(tensors), pass_, &trace);
    }
    scored = loss_.score(tensors.at(0), batch_.targets, pass_.weight);
    watch_.mark();
  }

  void draw() {
    if (!model_.uses_chance()) return;
    pass_.chance = nn::chance_of(0, masks_ ? masks_->begin_step(steps_) : static_cast<std::uint64_t>(steps_));
    if (masks_) return;
    at::Generator generator = at::globalContext().defaultGenerator(model_.device());
    generator.set_current_seed(pass_.chance);
  }

  /// One step as in a run.
  void train_step() {
    draw();
    nn::Trace trace;
    nn::Scored scored;
    watch_.start(ahead_);
    forward_pass(trace, scored);
    nn::Tensors gradients = {scored.gradient};
    for (std::size_t unit = times_.size(); unit-- > 0; watch_.mark())
      gradients = model_.back({unit, unit + 1}, std::move(gradients), pass_, trace, {.inputs = unit > 0}, nullptr);
    const std::size_t optimizer = static_cast<std::size_t>(steps_) % updaters_.size();  // optimizers take turns
    updaters_[optimizer]->begin_step({.rate = 0, .step = steps_ + 1});
    updaters_[optimizer]->update_all();
    model_.refresh();
    watch_.mark();
    const std::vector<double> between = watch_.read();
    const std::size_t units = times_.size();
    for (std::size_t unit = 0; unit < units; ++unit) {
      times_[unit].of[forward].push_back(between[unit]);
      times_[unit].of[backward].push_back(between[2 * units - 1 - unit]);
    }
    updates_[optimizer].push_back(between[2 * units]);
    totals_.push_back(std::accumulate(between.begin(), std::prev(between.end()), 0.0));
    ++steps_;
  }

  /// Gradients of inputs first and those of weights separately, as in schedules without bubbles.
  void split_step() {
    nn::Trace trace;
    nn::Scored scored;
    watch_.start(ahead_);
    forward_pass(trace, scored);
    nn::Tensors gradients = {scored.gradient};
    for (std::size_t unit = times_.size(); unit-- > 0;) {
      gradients = model_.back({unit, unit + 1}, std::move(gradients), pass_, trace, {.inputs = unit > 0, .weights = false}, nullptr);
      watch_.mark();
      model_.weight_gradients({unit, unit + 1}, pass_, trace, nullptr);
      watch_.mark();
    }
    const std::vector<double> between = watch_.read();
    const std::size_t units = times_.size();
    for (std::size_t unit = 0; unit < units; ++unit) {
      const std::size_t at = units + 2 * (units - 1 - unit);
      times_[unit].of[input_gradients].push_back(between[at]);
      times_[unit].of[weight_gradients].push_back(between[at + 1]);
    }
  }

  void evaluation_step() {
    nn::Pass pass;
    pass.training = false;
    nn::Tensors tensors = {batch_.inputs};
    watch_.start(ahead_);
    for (std::size_t unit = 0; unit < times_.size(); ++unit) {
      if (unit > 0) watch_.mark();
      tensors = model_.run({unit, unit + 1}, std::move(tensors), pass, nullptr);
    }
    loss_.evaluate(tensors.at(0), batch_.targets);
    watch_.mark();
    const std::vector<double> between = watch_.read();
    for (std::size_t unit = 0; unit < times_.size(); ++unit) times_[unit].of[evaluation].push_back(between[unit]);
  }

  nn::Model& model_;
  const nn::Loss& loss_;
  step::Batch batch_;
  std::vector<std::unique_ptr<step::Updater>>& updaters_;
  const Clock& clock_;
  Stopwatch watch_;
  std::unique_ptr<nn::Masks> masks_;  // null: the model draws from LibTorch's generator
  nn::Pass pass_;
  std::vector<UnitTimes> times_;
  std::vector<std::vector<double>> updates_;  // by optimizer
  std::vector<double> totals_;                // passes of each step
  std::int64_t steps_ = 0;
  double ahead_ = 0;
};

}  // namespace

step::Batch random_batch(const graph::Graph& graph, std::int64_t samples, const c10::Device& device) {
  const auto is_embedding = [](const graph::Layer& layer) { return layer.kind == graph::Kind::embedding; };
  const bool tokens = std::ranges::any_of(graph.layers(), is_embedding);
  std::vector<std::int64_t> inputs = {samples}, targets = {samples};
  inputs.insert(inputs.end(), graph.input().begin(), graph.input().end());
  targets.insert(targets.end(), graph.output().begin(), std::prev(graph.output().end()));
  const auto whole = at::TensorOptions().dtype(at::kLong).device(device);
  return {.inputs = tokens ? at::randint(graph.classes(), inputs, whole) : at::randn(inputs, at::TensorOptions().device(device)),
          .targets = at::randint(graph.classes(), targets, whole),
          .global_samples = samples};
}

perf::ProfileTable profile_network(nn::Model& model, const nn::Loss& loss,
                                   const std::function<step::Batch(std::int64_t samples)>& make_batch, const NetworkProfileOptions& options,
                                   const Rank& rank, const Clock& clock) {
  ensure(!options.optimizers.empty() && !options.batches.empty(), "a profile needs batches and an optimizer");
  perf::ProfileTable table;
  table.workers = rank.comm.topology().per_host, table.threads = rank.threads;
  for (const nn::Unit& unit : model.units()) {
    perf::UnitProfile& profile = table.units.emplace_back(perf::UnitProfile{.name = unit.name});
    for (std::size_t entry = unit.first_entry; entry < unit.last_entry; ++entry) profile.parameters += model.arena().entries()[entry].count;
  }
  std::vector<std::unique_ptr<step::Updater>> updaters;
  for (const optim::OptimConfig& optimizer : options.optimizers)
    updaters.push_back(std::make_unique<step::Updater>(model.arena(), optimizer));
  const auto elements = static_cast<double>(std::max<std::int64_t>(model.arena().length(), 1));
  for (const std::int64_t samples : options.batches) {
    rank.tell(fmt::format("batch {}", samples));
    TimedSteps timed(model, loss, make_batch(samples), updaters, clock);
    rank.meet();
    timed.steps(1);  // warms up memory and caches
    rank.meet();
    const double once = timed.steps(1);
    timed.forget();
    const auto wanted = static_cast<std::int64_t>(std::max(options.seconds, kLeastSeconds) / std::max(once, 1e-9));
    const std::int64_t count = rank.agreed(std::clamp(wanted, kLeastSteps, kMostSteps));
    rank.meet();
    timed.steps(count, kLeastSteps * std::ssize(updaters));
    const std::vector<double> means = rank.mean(timed.medians());
    const double jitter = count < kStepsThatVary ? 0 : rank.mean(timed.jitter());
    table.jitter = samples == options.batches.front() ? jitter : std::min(table.jitter, jitter);
    auto next = means.begin();
    for (perf::UnitProfile& unit : table.units)
      unit.seconds[samples] = {.forward = next[0],
                               .backward = next[1],
                               .input_gradients = next[2],
                               .weight_gradients = next[3],
                               .evaluation = next[4]},
      next += 5;
    for (const optim::OptimConfig& optimizer : options.optimizers) table.update_s[optimizer.name] = *next++ / elements;
  }
  return table;
}

}  // namespace paceline::measure
