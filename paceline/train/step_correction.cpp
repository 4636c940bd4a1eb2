#include "paceline/train/step_correction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "paceline/base/error.h"
#include "paceline/train/step_settings.h"

namespace paceline::train {
namespace {

/// Settings of how workers share the work: runs that agree in these are of one kind.
constexpr std::string_view kKind[] = {"parallel.workers", "strategy.name",   "parallel.pipeline", "parallel.tensor",
                                      "parallel.zero",    "train.precision", "comm.compression",  "ps.executor"};
/// Other settings that affect a step's time.
constexpr std::string_view kDetails[] = {"parallel.sequence", "parallel.hybrid",     "parallel.offload",    "parallel.schedule",
                                         "parallel.chunks",   "train.micro_batches", "train.recompute",     "train.storage",
                                         "train.gradients",   "comm.algorithm",      "comm.gradient_dtype", "strategy.bucket_mb",
                                         "strategy.period",   "ps.servers"};
constexpr std::string_view kAlways[] = {"parallel.workers", "strategy.name"};  // included even where they are defaults

std::string key_of(std::string_view word) { return std::string(word.substr(0, word.find('='))); }

bool is_of(std::span<const std::string_view> keys, const std::string& key) { return std::ranges::find(keys, key) != keys.end(); }

std::map<std::string, std::string> values_of(Recipe recipe) {
  std::map<std::string, std::string> values;
  const Config config = recipe.config();
  for (const Section& section : config.sections())
    for (const Field& field : section.fields()) values[section.name() + "." + field.key()] = field.toml();
  return values;
}

std::vector<std::string> kind_of(std::vector<std::string> way) {
  std::erase_if(way, [](const std::string& word) { return !is_of(kKind, key_of(word)); });
  return way;
}

}  // namespace

std::vector<std::string> way_of(const Recipe& recipe) {
  const std::map<std::string, std::string> values = values_of(recipe), usual = values_of({});
  std::vector<std::string> words;
  for (const std::span<const std::string_view> keys :
       {std::span<const std::string_view>(kKind), std::span<const std::string_view>(kDetails)})
    for (const std::string_view key : keys) {
      const std::string& value = values.at(std::string(key));
      if (key.starts_with("ps.") && !recipe.servers()) continue;
      if (is_of(kAlways, std::string(key)) || value != usual.at(std::string(key))) words.push_back(fmt::format("{}={}", key, value));
    }
  return words;
}

Recipe with_way(const Recipe& recipe, const std::vector<std::string>& way) {
  Recipe made = recipe;
  const Recipe usual;
  const std::map<std::string, std::string> values = values_of(usual);
  made.parallel = {};
  Config config = made.config();
  for (const std::span<const std::string_view> keys :
       {std::span<const std::string_view>(kKind), std::span<const std::string_view>(kDetails)})
    for (const std::string_view key : keys) config.set(fmt::format("{}={}", key, values.at(std::string(key))));
  for (const std::string& word : way) config.set(word);
  return made;
}

perf::RunStep run_step(const Recipe& recipe, const graph::Graph& graph, double seconds) {
  return {.network = graph.network(),
          .optimizer = recipe.optim.name,
          .moments = moments_of(recipe.optim),
          .parameters = graph.parameter_count(),
          .way = way_of(recipe),
          .batch = recipe.data.batch,
          .seconds = seconds};
}

StepCorrection::StepCorrection(const graph::Graph& graph, std::vector<perf::RunStep> steps, std::function<double(const Recipe&)> predict)
    : steps_(std::move(steps)), predict_(std::move(predict)) {
  std::erase_if(steps_,
                [&](const perf::RunStep& step) { return step.network != graph.network() || step.parameters != graph.parameter_count(); });
}

std::optional<double> StepCorrection::ratio(std::size_t step, const Recipe& recipe) const {
  const auto [found, missing] = ratios_.try_emplace(step);
  if (missing) try {
      Recipe run = with_way(recipe, steps_[step].way);
      run.data.batch = steps_[step].batch;
      found->second = steps_[step].seconds / predict_(run);
    } catch (const ConfigError&) {  // the recipe is incompatible with this run's settings
    }
  return found->second;
}

double StepCorrection::factor(const Recipe& recipe) const {
  if (steps_.empty()) return 1;
  const std::vector<std::string> way = way_of(recipe), kind = kind_of(way);
  std::map<std::int64_t, std::pair<double, int>> any, alike, same;  // by batch: sum of logarithms, and their number
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const std::vector<std::string>& other = steps_[i].way;
    if (!steps_[i].has_optimizer(recipe.optim.name, moments_of(recipe.optim)) || other.front() != way.front()) continue;
    const std::optional<double> off = ratio(i, recipe);
    if (!off || !(*off > 0)) continue;
    const auto add = [&](auto& sums) { sums[steps_[i].batch].first += std::log(*off), ++sums[steps_[i].batch].second; };
    add(any);
    if (kind_of(other) == kind) add(alike);
    if (other == way) add(same);
  }
  const auto& found = !same.empty() ? same : !alike.empty() ? alike : any;
  if (found.empty()) return 1;
  const auto mean = [](const auto& entry) { return entry.second.first / entry.second.second; };
  const auto above = found.lower_bound(recipe.data.batch);
  if (above == found.begin()) return std::exp(mean(*above));
  const auto below = std::prev(above);
  if (above == found.end()) return std::exp(mean(*below));
  const auto place = [](std::int64_t batch) { return std::log(static_cast<double>(batch)); };
  const double share = (place(recipe.data.batch) - place(below->first)) / (place(above->first) - place(below->first));
  return std::exp(mean(*below) + share * (mean(*above) - mean(*below)));
}

std::optional<double> StepCorrection::seconds(const Recipe& recipe) const {
  const std::vector<std::string> way = way_of(recipe);
  for (const perf::RunStep& step : steps_)
    if (step.way == way && step.batch == recipe.data.batch && step.has_optimizer(recipe.optim.name, moments_of(recipe.optim)))
      return step.seconds;
  return std::nullopt;
}

}  // namespace paceline::train
