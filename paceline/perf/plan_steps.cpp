#include "paceline/perf/plan_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/files.h"

namespace paceline::perf {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const std::vector<PlanStep>& steps) {
  Json document = {{"source", "measured"}, {"steps", Json::array()}};
  for (const PlanStep& step : steps)
    document["steps"].push_back(
        {{"question", step.question}, {"settings", step.settings}, {"predicted_s", step.predicted_s}, {"measured_s", step.measured_s}});
  return document.dump(1) + "\n";
}

PlanStep step_from(const Json& row) {
  PlanStep step{.question = row.at("question"), .settings = row.at("settings")};
  step.predicted_s = row.at("predicted_s"), step.measured_s = row.at("measured_s");
  return step;
}

}  // namespace

std::string question_text(const PlanQuestion& question) {
  return fmt::format("{} with {} parameters, batch {}, {} workers, {}, {} bytes stored, {} moments", question.graph->network(),
                     question.graph->parameter_count(), question.batch, question.workers, name_of(question.precision), question.storage,
                     question.moments);
}

std::string steps_file(const std::string& cluster) {
  std::filesystem::path file(cluster);
  return (file.extension() == ".toml" ? file.replace_extension(".steps.json") : file += ".steps.json").string();
}

std::vector<PlanStep> read_steps(const std::string& file) {
  std::error_code ignored;
  std::vector<PlanStep> steps;
  if (!std::filesystem::exists(file, ignored)) return steps;
  try {
    const Json document = Json::parse(read_file(file));
    for (const Json& row : document.at("steps")) steps.push_back(step_from(row));
  } catch (const Json::exception& problem) {
    throw ConfigError(fmt::format("{}: {}; delete it, and `paceline plan --probe-top 3` writes it anew", file, problem.what()));
  }
  for (std::size_t i = 0; i < steps.size(); ++i)
    for (const double value : {steps[i].predicted_s, steps[i].measured_s})
      if (!(value > 0) || !std::isfinite(value))
        throw ConfigError(fmt::format("{}: steps[{}] has {} s for a step, which takes more than 0; delete it", file, i, value));
  return steps;
}

void keep_steps(const std::string& file, const std::vector<PlanStep>& fresh) {
  std::vector<PlanStep> steps = read_steps(file);
  for (const PlanStep& step : fresh) {
    std::erase_if(steps, [&](const PlanStep& known) { return known.question == step.question && known.settings == step.settings; });
    steps.push_back(step);
  }
  write_atomically(file, text_of(steps));
}

void apply_steps(Plans& plans, const PlanQuestion& question, const std::vector<PlanStep>& steps) {
  const std::string asked = question_text(question);
  double logarithms = 0, count = 0;
  for (const PlanStep& step : steps)
    if (step.question == asked) logarithms += std::log(step.measured_s / step.predicted_s), ++count;
  if (count == 0) return;
  const double factor = std::exp(logarithms / count);
  for (Plan& plan : plans.exact)
    for (const PlanStep& step : steps)
      if (step.question == asked && step.settings == settings_of(plan.choice)) plan.measured_s = step.measured_s;
  std::ranges::stable_sort(plans.exact, {},
                           [&](const Plan& plan) { return plan.measured_s > 0 ? plan.measured_s : factor * plan.cost.seconds; });
  plans.notes.push_back(
      fmt::format("{:.0f} plans of this question were run before: a step took {:.2f} times its prediction", count, factor));
}

}  // namespace paceline::perf
