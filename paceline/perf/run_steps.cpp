#include "paceline/perf/run_steps.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"
#include "paceline/base/files.h"

namespace paceline::perf {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const RunStep& step) {
  Json row = {{"network", step.network}, {"parameters", step.parameters}, {"optimizer", step.optimizer}};
  if (step.moments) row["moments"] = *step.moments;
  row.update(Json{{"way", step.way}, {"batch", step.batch}, {"seconds", step.seconds}});
  return row;
}

RunStep step_from(const Json& row) {
  RunStep step;
  step.network = row.at("network"), step.parameters = row.at("parameters"), step.optimizer = row.at("optimizer");
  if (row.contains("moments")) step.moments = row.at("moments").get<int>();
  step.way = row.at("way").get<std::vector<std::string>>(), step.batch = row.at("batch"), step.seconds = row.at("seconds");
  return step;
}

/// Whether two records differ at most in their seconds.
bool same_run(RunStep step, const RunStep& other) {
  if (!step.has_optimizer(other.optimizer, other.moments)) return false;
  step.seconds = other.seconds, step.moments = other.moments;
  return step == other;
}

}  // namespace

std::string steps_file(const std::string& cluster) {
  std::filesystem::path file(cluster);
  return (file.extension() == ".toml" ? file.replace_extension(".steps.json") : file += ".steps.json").string();
}

std::vector<RunStep> read_steps(const std::string& file) {
  std::error_code ignored;
  std::vector<RunStep> steps;
  if (!std::filesystem::exists(file, ignored)) return steps;
  try {
    const Json document = Json::parse(read_file(file));
    for (const Json& row : document.at("steps")) steps.push_back(step_from(row));
  } catch (const Json::exception& problem) {
    throw ConfigError(fmt::format(
        "{}: {}; delete it, then run `paceline plan --probe-top 3` or `paceline profile --steps` to write it again", file, problem.what()));
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!(steps[i].seconds > 0) || !std::isfinite(steps[i].seconds))
      throw ConfigError(fmt::format("{}: steps[{}] has {} s for a step, which must be more than 0; delete it", file, i, steps[i].seconds));
    if (steps[i].way.empty()) throw ConfigError(fmt::format("{}: steps[{}].way is empty; delete it", file, i));
    if (steps[i].batch < 1) throw ConfigError(fmt::format("{}: steps[{}] has a batch of {}; delete it", file, i, steps[i].batch));
  }
  return steps;
}

void keep_steps(const std::string& file, const std::vector<RunStep>& fresh) {
  std::vector<RunStep> steps = read_steps(file);
  for (const RunStep& step : fresh) {
    std::erase_if(steps, [&](const RunStep& known) { return same_run(known, step); });
    steps.push_back(step);
  }
  Json document = {{"source", "measured"}, {"steps", Json::array()}};
  for (const RunStep& step : steps) document["steps"].push_back(json_of(step));
  write_atomically(file, document.dump(1) + "\n");
}

}  // namespace paceline::perf
