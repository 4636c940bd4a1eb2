#include "paceline/perf/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "paceline/perf/least_squares.h"
#include "paceline/perf/table_model.h"

namespace paceline::perf {
namespace {

constexpr const char* kLaunch = "launch of an operation";
constexpr double kLaunches[] = {5e-6, 30e-6, 100e-6};  // s: starting points of the fit
constexpr double kNoise = 0.04;                        // relative error that remains even with a good model

struct Model {
  Cluster cluster;
  double half_flops = 0;  // size of a product that reaches half of the peak
  Overheads overheads;
};

/// One fitted number: its place in the model, and how far it may move from its starting point.
struct Knob {
  const char *name, *unit;
  double spread;
  double& (*of)(Model&);
};
constexpr Knob kKnobs[] = {
    {"peak of 16-bit products", "flop/s", 0.5, [](Model& model) -> double& { return model.cluster.device.fp16.flops.value; }},
    {"products that reach half of it", "flop", 2, [](Model& model) -> double& { return model.half_flops; }},
    {"memory bandwidth", "B/s", 0.5, [](Model& model) -> double& { return model.cluster.device.memory_bandwidth.value; }},
    {kLaunch, "s", 1.5, [](Model& model) -> double& { return model.cluster.device.launch.value; }},
    {"update bandwidth", "B/s", 1, [](Model& model) -> double& { return model.cluster.device.update_bandwidth.value; }},
    {"reduce bandwidth", "B/s", 1, [](Model& model) -> double& { return model.cluster.device.reduce_bandwidth.value; }},
    {"latency of a link", "s", 1.5, [](Model& model) -> double& { return model.cluster.inside.latency.value; }},
    {"bandwidth of a link", "B/s", 1, [](Model& model) -> double& { return model.cluster.inside.bandwidth.value; }},
    {"every step on top", "s", 1, [](Model& model) -> double& { return model.overheads.step_s; }},
    {"logits take longer by", "times", 1, [](Model& model) -> double& { return model.overheads.vocabulary; }},
};

/// The reached share of the peak by size: size / (size + half).
Efficiency efficiency_of(double half) {
  Efficiency made{.points = {}, .source = Source::measured};
  for (double flops = 1e5; flops < 1e15; flops *= 4) made.points.push_back({flops, flops / (flops + half)});
  return made;
}

/// As many hosts as the largest row needs.
Model start_of(const TableQuestion& question) {
  Model model{.cluster = question.cluster, .half_flops = 5e9, .overheads = {.step_s = 2e-3, .vocabulary = 2}};
  const std::int64_t gpus = std::ranges::max(question.steps, {}, &MeasuredStep::gpus).gpus;
  model.cluster.hosts = (gpus + model.cluster.devices - 1) / model.cluster.devices;
  Device& device = model.cluster.device;
  const auto otherwise = [](Quantity& quantity, double value) {
    if (quantity.value <= 0) quantity.value = value;
  };
  otherwise(device.fp16.flops, device.bf16.known() ? device.bf16.flops.value : 8 * device.flops.value);
  otherwise(device.launch, 10e-6);
  otherwise(device.update_bandwidth, device.memory_bandwidth.value);
  otherwise(device.reduce_bandwidth, device.memory_bandwidth.value / 3);
  return model;
}

Model model_of(const Model& start, const std::vector<double>& values) {
  Model model = start;
  for (std::size_t i = 0; i < values.size(); ++i) kKnobs[i].of(model) = values[i];
  Device& device = model.cluster.device;
  device.fp16.products = efficiency_of(model.half_flops);
  device.bf16 = device.fp16;
  if (model.cluster.hosts == 1) model.cluster.between = model.cluster.inside;
  return model;
}

/// Marks all fitted values as such in the cluster file.
void mark(Cluster& cluster) {
  Device& device = cluster.device;
  for (Quantity* each : {&device.fp16.flops, &device.bf16.flops, &device.memory_bandwidth, &device.launch, &device.update_bandwidth,
                         &device.reduce_bandwidth, &cluster.inside.latency, &cluster.inside.bandwidth})
    each->source = Source::measured;
  if (cluster.hosts == 1) cluster.between = cluster.inside;
}

PredictionErrors errors_of(const TableQuestion& question, const std::vector<double>& predicted, const std::vector<std::size_t>& rows) {
  PredictionErrors errors{.rows = rows.size()};
  std::vector<double> sizes;
  for (const std::size_t i : rows) {
    const double error = predicted[i] / question.steps[i].seconds - 1;
    sizes.push_back(std::abs(error));
    errors.mean += std::abs(error), errors.bias += error;
    if (std::abs(error) >= errors.worst) errors.worst = std::abs(error), errors.worst_line = question.steps[i].line;
  }
  if (rows.empty()) return errors;
  errors.mean /= static_cast<double>(rows.size()), errors.bias /= static_cast<double>(rows.size());
  std::ranges::sort(sizes);
  errors.percentile90 = sizes[static_cast<std::size_t>(0.9 * static_cast<double>(sizes.size() - 1))];
  return errors;
}

std::vector<GroupError> groups_of(const TableQuestion& question, const std::vector<double>& predicted,
                                  const std::vector<std::size_t>& rows) {
  struct Column {
    const char* name;
    std::int64_t MeasuredStep::*field;
  };
  constexpr Column kColumns[] = {{"tensor", &MeasuredStep::tensor},
                                 {"data", &MeasuredStep::data},
                                 {"pipeline", &MeasuredStep::pipeline},
                                 {"micro batch", &MeasuredStep::micro_batch},
                                 {"hidden", &MeasuredStep::hidden}};
  std::vector<GroupError> groups;
  for (const Column& column : kColumns) {
    std::map<std::int64_t, std::vector<std::size_t>> by_value;
    for (const std::size_t i : rows) by_value[question.steps[i].*column.field].push_back(i);
    for (const auto& [value, members] : by_value) groups.push_back({column.name, value, errors_of(question, predicted, members)});
  }
  return groups;
}

Regret regret_of(const TableQuestion& question, const std::vector<double>& predicted) {
  std::map<std::vector<std::int64_t>, std::vector<std::size_t>> questions;
  for (std::size_t i = 0; i < question.steps.size(); ++i) {
    const MeasuredStep& step = question.steps[i];
    questions[{step.gpus, step.global_batch, step.hidden, step.heads, step.layers, step.sequence, step.vocabulary}].push_back(i);
  }
  Regret regret;
  for (auto& [key, plans] : questions) {
    if (plans.size() < 2) continue;
    const auto measured = [&](std::size_t plan) { return question.steps[plan].seconds; };
    std::ranges::stable_sort(plans, {}, [&](std::size_t plan) { return predicted[plan]; });
    double best = measured(plans.front()), of_three = best;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      best = std::min(best, measured(plans[i]));
      if (i < 3) of_three = std::min(of_three, measured(plans[i]));
    }
    const double lost = measured(plans.front()) / best - 1;
    ++regret.questions, regret.mean += lost, regret.worst = std::max(regret.worst, lost), regret.top3_mean += of_three / best - 1;
  }
  if (regret.questions > 0) regret.mean /= static_cast<double>(regret.questions), regret.top3_mean /= static_cast<double>(regret.questions);
  return regret;
}

/// The first rows of a random order are used for the fit.
std::vector<std::size_t> drawn(const TableQuestion& question) {
  const auto all = question.steps.size();
  const auto count = static_cast<std::size_t>(std::llround(question.fraction * static_cast<double>(all)));
  if (count < std::size(kKnobs) || count >= all)
    throw ConfigError(fmt::format(
        "--calibrate {} uses {} of {} rows, but {} numbers are fitted and some rows must be left over; use at least {:.3g} and less than 1",
        question.fraction, count, all, std::size(kKnobs),
        std::ceil(1e3 * static_cast<double>(std::size(kKnobs)) / static_cast<double>(all)) / 1e3));
  std::vector<std::size_t> order(all);
  std::iota(order.begin(), order.end(), 0);
  RandomStream(question.seed, Purpose::shuffle).shuffle(std::span(order));
  order.resize(count);
  std::ranges::sort(order);
  return order;
}

}  // namespace

TableVerification verify_table(const TableQuestion& question) {
  const std::vector<std::size_t> rows = drawn(question);
  const TableModel table(question.steps, question.allreduce);
  const Model start = start_of(question);
  std::vector<FitParameter> parameters;
  for (const Knob& knob : kKnobs) {
    Model copy = start;
    parameters.push_back({knob.name, knob.of(copy), knob.spread});
  }
  const auto residuals = [&](const std::vector<double>& values) {
    const Model model = model_of(start, values);
    std::vector<double> errors = table.predict(model.cluster, model.overheads, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) errors[i] = std::log(errors[i] / question.steps[rows[i]].seconds);
    return errors;
  };
  // If launches bound all passes, or none, errors do not depend on the launch time. So several starting points are tried.
  Fitted fitted{.values = {}, .rounds = 0, .cost = std::numeric_limits<double>::infinity()};
  for (const double launch : kLaunches) {
    for (FitParameter& parameter : parameters)
      if (parameter.name == kLaunch) parameter.start = launch;
    if (Fitted found = fit(parameters, residuals, kNoise); found.cost < fitted.cost) fitted = std::move(found);
  }
  Model model = model_of(start, fitted.values);

  TableVerification result;
  std::vector<std::size_t> all(question.steps.size()), others;
  std::iota(all.begin(), all.end(), 0);
  std::ranges::set_difference(all, rows, std::back_inserter(others));
  result.predicted = table.predict(model.cluster, model.overheads, all);
  result.seen.assign(all.size(), false);
  for (const std::size_t i : rows) result.seen[i] = true;
  result.fitted = errors_of(question, result.predicted, rows);
  result.others = errors_of(question, result.predicted, others);
  result.groups = groups_of(question, result.predicted, others);
  result.regret = regret_of(question, result.predicted);
  mark(model.cluster);
  for (std::size_t i = 0; i < fitted.values.size(); ++i)
    result.calibration.values.push_back({kKnobs[i].name, fitted.values[i], kKnobs[i].unit});
  result.calibration.cluster = std::move(model.cluster), result.calibration.overheads = model.overheads,
  result.calibration.rounds = fitted.rounds;
  return result;
}

}  // namespace paceline::perf
