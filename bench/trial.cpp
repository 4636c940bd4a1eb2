#include "trial.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "helpers.h"
#include "paceline/base/error.h"
#include "paceline/base/run_program.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/base/text.h"
#include "paceline/launch/capture.h"
#include "paceline/observe/run_folder.h"

namespace paceline::bench {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> command_of(const Trial& trial, const fs::path& runs) {
  std::vector<std::string> words = {main_program(), "train"};
  words.insert(words.end(), trial.words.begin(), trial.words.end());
  const auto set = [&](const char* key, const auto& value) { words.push_back(fmt::format("{}={}", key, value)); };
  set("data.batch", trial.batch);
  set("data.test_samples", trial.workers);  // the evaluation at the end has next to nothing to do
  set("train.threads", trial.threads);
  set("train.steps", trial.warm_up + trial.steps);
  set("train.epochs", 1'000'000);  // as many as the steps take
  set("train.evaluate_every", 0);
  set("train.checkpoint_every", 0);
  set("train.trace", false);
  set("train.runs", runs.string());
  set("train.name", "trial");
  words.insert(words.end(), {"--workers", std::to_string(trial.workers), "--quiet", "--json"});
  return words;
}

}  // namespace

Measured run_trial(const Trial& trial, const std::atomic<bool>& stop) {
  const TemporaryFolder scratch;
  const launch::Captured child = launch::capture(command_of(trial, scratch.path()), stop);
  if (stop) throw Error("stopped on request");
  if (!child.exit.good()) {
    const std::string what = fmt::format("{}, data.batch={}: {}", plural(trial.workers, "worker"), trial.batch, child.complaint());
    if (child.exit.code == kWrongInput) throw ConfigError(what);
    throw Error(what);
  }
  Measured measured;
  double seconds = 0, samples = 0;
  std::int64_t steps = 0;
  const auto result = nlohmann::json::parse(child.out);
  std::ifstream metrics(observe::RunFolder::open(result.at("run").get<std::string>()).metrics());
  for (std::string line; std::getline(metrics, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event.at("event") != "step" || event.at("step") <= trial.warm_up) continue;
    const double duration = event.at("seconds");
    ++steps, seconds += duration, samples += event.at("samples").get<double>();
    measured.exposed += duration * event.at("communication_share").get<double>();
    measured.hidden += duration * event.at("hidden_share").get<double>();
  }
  if (steps == 0 || seconds <= 0) throw Error("a trial ended without a measured step");
  measured.step_s = seconds / static_cast<double>(steps), measured.samples_per_s = samples / seconds;
  measured.settled_s = result.at("step_s");
  measured.exposed /= seconds, measured.hidden /= seconds;
  if (const auto told = result.find("communication"); told != result.end()) {
    const auto take = [&](const char* key, double& value) { value = told->at(key).get<double>(); };
    take("straggler_spread", measured.straggler_spread), take("bytes_per_step", measured.bytes_per_step), take("ratio", measured.ratio);
  }
  if (result.contains("server")) measured.exposed = measured.hidden = measured.straggler_spread = measured.bytes_per_step = std::nan("");
  return measured;
}

Measured run_trial(const Trial& trial) {
  static const std::atomic<bool> never = false;
  return run_trial(trial, never);
}

}  // namespace paceline::bench
