#include "paceline/observe/verification.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "paceline/base/error.h"

namespace paceline::observe {
namespace {

using nlohmann::json;

/// A summary has null for values that were not measured.
std::optional<double> value_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number() || !std::isfinite(found->get<double>())) return std::nullopt;
  return found->get<double>();
}
double number(const json& object, const char* key) { return value_of(object, key).value_or(0); }

VerifiedRun from_json(const json& summary, const json& prediction) {
  const json &predicted = prediction.at("predicted"), &measured = prediction.at("measured");
  VerifiedRun run;
  run.run = summary.at("run");
  run.network = summary.at("network"), run.strategy = summary.at("strategy");
  run.device = summary.at("device"), run.precision = summary.at("precision");
  run.workers = summary.at("workers"), run.batch = summary.at("batch");
  run.samples = summary.contains("server") ? std::max<std::int64_t>(run.batch / std::max<std::int64_t>(run.workers, 1), 1) : run.batch;
  run.predicted_s = number(predicted, "step_s"), run.low_s = number(predicted, "low_s"), run.high_s = number(predicted, "high_s");
  run.measured_s = number(measured, "step_s");
  run.predicted_exposed_s = number(predicted, "exposed_s"), run.predicted_bytes = number(predicted, "bytes");
  // Older summaries have 0 where nothing was measured.
  if (run.workers == 1 || summary.contains("communication"))
    run.measured_exposed_s = value_of(measured, "exposed_s"), run.measured_bytes = value_of(measured, "bytes");
  run.predicted_memory = number(predicted, "memory_bytes"), run.measured_memory = number(measured, "memory_bytes");
  return run;
}

/// A percentile: the smallest of the sorted values that at least this share of them do not exceed.
double percentile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

std::vector<Bias> biases_of(const std::vector<VerifiedRun>& runs) {
  double step = 0, computing = 0, exposed = 0, bytes = 0;
  std::size_t watched = 0, sending = 0;
  for (const VerifiedRun& run : runs) {
    step += run.error();
    if (run.measured_exposed_s) {
      const double error = (run.predicted_exposed_s - *run.measured_exposed_s) / run.measured_s;
      exposed += error, computing += run.error() - error, ++watched;
    }
    if (run.measured_bytes.value_or(0) > 0) bytes += run.predicted_bytes / *run.measured_bytes - 1, ++sending;
  }
  const auto share = [](double sum, std::size_t count) { return sum / static_cast<double>(count); };
  std::vector<Bias> made = {{"step", share(step, runs.size())}};
  if (watched > 0) made.insert(made.end(), {{"computing", share(computing, watched)}, {"exposed communication", share(exposed, watched)}});
  if (sending > 0) made.push_back({"bytes", share(bytes, sending)});
  return made;
}

std::vector<Regret> regrets_of(const std::vector<VerifiedRun>& runs) {
  std::map<std::string, std::vector<const VerifiedRun*>> questions;
  for (const VerifiedRun& run : runs)
    questions[fmt::format("{}, batch {}, {} worker{}, {}, {}{}", run.network, run.batch, run.workers, run.workers == 1 ? "" : "s",
                          run.device, run.precision, run.exact ? "" : ", asynchronous or lossy")]
        .push_back(&run);
  const auto per_sample = [](double step_s, const VerifiedRun* run) { return step_s / static_cast<double>(run->samples); };
  std::vector<Regret> made;
  for (const auto& [question, answers] : questions) {
    if (answers.size() < 2) continue;
    const auto* chosen = *std::ranges::min_element(answers, {}, [&](const auto* run) { return per_sample(run->predicted_s, run); });
    const auto* best = *std::ranges::min_element(answers, {}, [&](const auto* run) { return per_sample(run->measured_s, run); });
    made.push_back({question, chosen->run, best->run, answers.size(),
                    per_sample(chosen->measured_s, chosen) / per_sample(best->measured_s, best) - 1});
  }
  return made;
}

}  // namespace

std::optional<VerifiedRun> read_verified(const std::filesystem::path& summary) {
  std::ifstream file(summary);
  const json document = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded() || !document.is_object())
    throw DataError(summary.string(), "is not the summary of a run; leave it out, or train again");
  const auto prediction = document.find("prediction");
  if (prediction == document.end()) return std::nullopt;
  try {
    const VerifiedRun run = from_json(document, *prediction);
    if (!(run.measured_s > 0) || !(run.predicted_s > 0)) return std::nullopt;  // the run ended before its first step
    return run;
  } catch (const json::exception& problem) {
    throw DataError(summary.string(), fmt::format("{}; it may be from another version of Paceline. Train again", problem.what()));
  }
}

std::vector<std::filesystem::path> find_summaries(const std::filesystem::path& folder) {
  constexpr const char* kName = "summary.json";
  std::error_code ignored;
  if (std::filesystem::exists(folder / kName, ignored)) return {folder / kName};
  if (!std::filesystem::is_directory(folder, ignored))
    throw ConfigError(fmt::format("there is no folder {}; name a run, or a folder of runs", folder.string()));
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (std::filesystem::exists(entry.path() / kName, ignored)) found.push_back(entry.path() / kName);
  std::ranges::sort(found);
  return found;
}

Verification verify(std::vector<VerifiedRun> runs) {
  ensure(!runs.empty(), "there are runs to verify");
  Verification made;
  std::vector<double> errors;
  for (const VerifiedRun& run : runs) {
    errors.push_back(std::abs(run.error()));
    made.mean += errors.back() / static_cast<double>(runs.size());
  }
  for (const VerifiedRun& run : runs)
    if (run.knows_memory()) {
      ++made.with_memory, made.memory_mean += std::abs(run.memory_error());
      made.memory_worst = std::max(made.memory_worst, std::abs(run.memory_error()));
    }
  if (made.with_memory > 0) made.memory_mean /= static_cast<double>(made.with_memory);
  made.inside = static_cast<double>(std::ranges::count_if(runs, &VerifiedRun::inside)) / static_cast<double>(runs.size());
  std::ranges::sort(errors);
  made.percentile_90 = percentile(errors, 0.9), made.worst = errors.back();
  made.bias = biases_of(runs), made.regrets = regrets_of(runs);
  made.runs = std::move(runs);
  return made;
}

nlohmann::ordered_json to_json(const Verification& v) {
  const auto or_null = [](const std::optional<double>& value) { return value ? json(*value) : json(); };
  nlohmann::ordered_json document = {{"runs", nlohmann::ordered_json::array()},
                                     {"mean_error", v.mean},
                                     {"percentile_90", v.percentile_90},
                                     {"worst_error", v.worst},
                                     {"inside_interval", v.inside},
                                     {"bias", nlohmann::ordered_json::object()},
                                     {"regrets", nlohmann::ordered_json::array()}};
  if (v.with_memory > 0) document["memory"] = {{"runs", v.with_memory}, {"mean_error", v.memory_mean}, {"worst_error", v.memory_worst}};
  for (const VerifiedRun& run : v.runs) {
    document["runs"].push_back({{"run", run.run},
                                {"network", run.network},
                                {"strategy", run.strategy},
                                {"workers", run.workers},
                                {"batch", run.batch},
                                {"predicted_s", run.predicted_s},
                                {"low_s", run.low_s},
                                {"high_s", run.high_s},
                                {"measured_s", run.measured_s},
                                {"error", run.error()},
                                {"predicted_exposed_s", run.predicted_exposed_s},
                                {"measured_exposed_s", or_null(run.measured_exposed_s)},
                                {"predicted_bytes", run.predicted_bytes},
                                {"measured_bytes", or_null(run.measured_bytes)},
                                {"exact", run.exact}});
    if (run.knows_memory())
      document["runs"].back().update({{"predicted_memory", run.predicted_memory}, {"measured_memory", run.measured_memory}});
  }
  for (const Bias& bias : v.bias) document["bias"][bias.part] = bias.share;
  for (const Regret& regret : v.regrets)
    document["regrets"].push_back(
        {{"question", regret.question}, {"runs", regret.runs}, {"chosen", regret.chosen}, {"best", regret.best}, {"regret", regret.share}});
  return document;
}

}  // namespace paceline::observe
