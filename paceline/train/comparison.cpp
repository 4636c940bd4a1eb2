#include "paceline/train/comparison.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/text.h"
#include "paceline/comm/world.h"
#include "paceline/observe/metrics.h"
#include "paceline/observe/predictions.h"
#include "paceline/observe/run_folder.h"
#include "paceline/observe/run_lock.h"
#include "paceline/observe/summary.h"
#include "paceline/tensor/device.h"
#include "paceline/train/workers.h"

namespace paceline::train {
namespace {

namespace fs = std::filesystem;

// The yardsticks. One worker of a server is plain SGD too, under the same clock as the others.
constexpr const char *kSgd = "sgd", *kSingle = "single";

constexpr auto kBetweenLooks = std::chrono::milliseconds(50);  // of whoever waits for the runs: are they to stop?

/// Everything of a run in its folder, nothing on the terminal.
void run_one(Recipe recipe, const fs::path& path, const std::atomic<bool>& stop) {
  const SteadyClock clock;
  observe::Bus bus;
  Workers workers(recipe, comm::World{}, {.bus = bus, .clock = clock, .stop = stop});  // refuses before anything is written
  std::error_code ignored;
  fs::remove_all(path, ignored);  // what an interrupted run left
  fs::create_directories(path);
  const auto folder = observe::RunFolder::open(path);
  write_atomically(folder.recipe(), recipe.config().toml());
  bus.add(std::make_unique<observe::MetricsLog>(folder.metrics(), clock));
  bus.add(std::make_unique<observe::Predictions>(folder.predictions()));
  bus.add(std::make_unique<observe::Summary>(folder.summary()));
  try {
    workers.run(path);
  } catch (const Diverged& problem) {  // that is a result as well
    write_atomically(folder.summary(), nlohmann::json{{"diverged", problem.what()}}.dump(2) + "\n");
  }
}

/// A recipe without the places of things, which may differ where a comparison goes on.
std::string what_decides(const std::string& recipe) {
  std::istringstream lines(recipe);
  std::string rest;
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("root = ") && !line.starts_with("runs = ") && !line.starts_with("device = ")) rest += line + "\n";
  return rest;
}

void read_evaluation(const nlohmann::json& event, Outcome& outcome) {
  outcome.epoch.push_back(event.at("epoch").get<double>());
  outcome.error.push_back(100 * (1 - event.at("test_accuracy").get<double>()));
  outcome.time.push_back(event.at("training_seconds").is_number() ? event.at("training_seconds").get<double>() : NAN);
}

/// The losses of single steps hop about; what is shown are their means over stretches of equally many steps.
void read_steps(const std::vector<nlohmann::json>& steps, Outcome& outcome) {
  constexpr std::size_t kStretches = 50;
  double samples = 0, bytes = 0, loss = 0, weight = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto number = [&](const char* key) {
      const auto found = steps[i].find(key);
      return found != steps[i].end() && found->is_number() ? found->get<double>() : NAN;
    };
    samples += number("samples"), bytes += number("bytes_sent");
    loss += number("loss") * number("samples"), weight += number("samples");
    if ((i + 1) * kStretches / steps.size() == i * kStretches / steps.size()) continue;  // inside a stretch
    outcome.loss.push_back(loss / weight), outcome.samples.push_back(samples), outcome.megabytes.push_back(bytes / 1e6);
    loss = weight = 0;
  }
}

void read_metrics(const fs::path& metrics, Outcome& outcome) {
  std::ifstream file(metrics);
  std::vector<nlohmann::json> steps;
  for (std::string line; std::getline(file, line);) {
    nlohmann::json event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_discarded()) continue;
    if (event.value("event", "") == "evaluation") read_evaluation(event, outcome);
    if (event.value("event", "") == "step") steps.push_back(std::move(event));
  }
  read_steps(steps, outcome);
}

void read_predictions(const fs::path& csv, Outcome& outcome) {
  std::ifstream file(csv);
  std::string line;
  std::getline(file, line);  // the heading
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = items_of(line, ',');
    if (cells.size() < 3) continue;
    outcome.predicted_loss.push_back(std::stod(cells[1])), outcome.actual_loss.push_back(std::stod(cells[2]));
    if (cells.size() < 5) continue;
    outcome.predicted_steps.push_back(std::stod(cells[3])), outcome.actual_steps.push_back(std::stod(cells[4]));
  }
}

/// Two runs of the same numbers would share a folder.
void refuse_twice(const char* key, std::vector<std::int64_t> numbers) {
  std::ranges::sort(numbers);
  if (const auto twice = std::ranges::adjacent_find(numbers); twice != numbers.end())
    throw ConfigError(fmt::format("compare.{} names {} twice; leave one of them out", key, *twice));
}

void keep_those_below(const char* key, std::int64_t workers, std::int64_t most, std::vector<std::int64_t>& slow) {
  for (const std::int64_t number : slow)
    if (number >= most)
      throw ConfigError(
          fmt::format("timing.{}: no run of this comparison has a worker {}; the {} of the largest count from 0", key, number, most));
  std::erase_if(slow, [&](std::int64_t number) { return number >= workers; });
}

std::string stragglers_of(const Recipe& recipe) {
  if (!recipe.servers()) return "";
  const ps::TimingConfig& timing = recipe.timing;
  std::string text;
  if (!timing.slow_workers.empty())
    text = fmt::format("worker {} computes {:g}×", fmt::join(timing.slow_workers, ", "), timing.slow_factor);
  if (!timing.slow_links.empty())
    text += fmt::format("{}link of worker {} takes {:g}×", text.empty() ? "" : ", ", fmt::join(timing.slow_links, ", "),
                        timing.slow_link_factor);
  return text;
}

}  // namespace

bool Contestant::alone() const { return algorithm == kSgd || algorithm == kSingle; }

std::string Contestant::folder() const {
  std::string name = fmt::format("{}-{}w-seed{}", algorithm, workers, seed);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '_';
  return name;
}

std::vector<Contestant> contestants(const CompareConfig& config) {
  std::vector<Contestant> all;
  const auto entries = items_of(config.algorithms, ';');
  if (entries.empty()) throw ConfigError("compare.algorithms is empty; name strategies, like \"sgd; ssgd; asgd\"");
  if (config.seeds.empty()) throw ConfigError("compare.seeds is empty; name at least one, like [1]");
  if (config.workers.empty()) throw ConfigError("compare.workers is empty; name at least one number, like [4]");
  refuse_twice("workers", config.workers), refuse_twice("seeds", config.seeds);
  std::vector<std::string> seen;
  for (const std::string& entry : entries) {
    const auto colon = entry.find(':');
    Contestant contestant;
    contestant.algorithm = trimmed(entry.substr(0, colon));
    contestant.workers = contestant.seed = 0;
    if (std::ranges::find(seen, contestant.folder()) != seen.end())
      throw ConfigError(
          fmt::format("compare.algorithms names '{}' twice; give one of them a label: \"label: strategy.name=…\"", contestant.algorithm));
    seen.push_back(contestant.folder());
    if (colon != std::string::npos) contestant.settings = items_of(entry.substr(colon + 1), ' ');
    else contestant.settings = {fmt::format("strategy.name={}", contestant.algorithm == kSgd ? "asgd" : contestant.algorithm)};
    for (const std::int64_t workers : contestant.alone() ? std::vector<std::int64_t>{1} : config.workers)
      for (const std::int64_t seed : config.seeds) {
        contestant.workers = workers, contestant.seed = seed;
        all.push_back(contestant);
      }
  }
  return all;
}

Recipe recipe_of(const Recipe& recipe, const Contestant& contestant, const fs::path& runs) {
  Recipe made = recipe;
  Config config = made.config();
  for (const std::string& setting : contestant.settings) {
    try {
      config.set(setting);
    } catch (const ConfigError& problem) {
      throw ConfigError(fmt::format("compare.algorithms, '{}': {}", contestant.algorithm, problem.what()));
    }
  }
  const std::int64_t most = std::ranges::max(contestants(recipe.compare), {}, &Contestant::workers).workers;
  keep_those_below("slow_workers", contestant.workers, most, made.timing.slow_workers);
  keep_those_below("slow_links", contestant.workers, most, made.timing.slow_links);
  made.compare = {};  // whatever else is compared, this run is the same
  made.train.seed = contestant.seed;
  made.parallel.workers = contestant.workers;
  made.data.batch *= contestant.workers;
  made.train.checkpoints = false;
  made.train.runs = runs.string();
  made.train.name = contestant.folder();
  validate(made);
  if (made.servers() && made.ps.executor == "processes")
    throw ConfigError(
        fmt::format("compare has all workers of '{}' in its own process; use ps.executor=virtual or threads", contestant.algorithm));
  return made;
}

std::optional<double> Outcome::error_with(const std::string& statistics) const {
  if (!diverged.empty()) return NAN;
  const auto with = [&](const std::string& kind) { return std::ranges::find(errors, kind, &std::pair<std::string, double>::first); };
  auto found = with(statistics);
  if (found == errors.end() && statistics == "worker") found = with("");
  return found != errors.end() ? std::optional(found->second) : std::nullopt;
}

std::optional<Outcome> read_outcome(const Contestant& contestant, const fs::path& folder, const std::string& recipe_text) {
  std::error_code ignored;
  if (fs::exists(folder, ignored) && !fs::is_empty(folder, ignored) && !fs::exists(folder / "recipe.toml", ignored))
    throw ConfigError(fmt::format("{} is not a run of a comparison; use another --folder", folder.string()));
  if (!fs::exists(folder / "summary.json", ignored)) return std::nullopt;
  const auto summary = nlohmann::json::parse(read_file(folder / "summary.json"), nullptr, false);
  if (summary.is_discarded() || summary.contains("stopped")) return std::nullopt;
  if (what_decides(read_file(folder / "recipe.toml")) != what_decides(recipe_text))
    throw ConfigError(fmt::format("{} holds a finished run of another recipe; use another --folder, or remove it", folder.string()));
  Outcome outcome;
  outcome.contestant = contestant;
  if (summary.contains("diverged")) {
    outcome.diverged = summary.at("diverged").get<std::string>();
    outcome.errors = {{"", NAN}};
    read_metrics(folder / "metrics.jsonl", outcome);
    return outcome;
  }
  outcome.epochs = summary.at("epochs").get<double>();
  outcome.wall_seconds = summary.at("seconds").get<double>();
  outcome.errors = {{"", 100 * (1 - summary.at("test_accuracy").get<double>())}};
  if (const auto views = summary.find("views"); views != summary.end()) {
    outcome.errors.clear();
    for (const auto& [view, found] : views->items()) outcome.errors.emplace_back(view, 100 * (1 - found.at("test_accuracy").get<double>()));
  }
  read_metrics(folder / "metrics.jsonl", outcome);
  read_predictions(folder / "predictions.csv", outcome);
  outcome.seconds = outcome.time.empty() ? outcome.wall_seconds : outcome.time.back();
  if (const auto talk = summary.find("communication"); talk != summary.end())
    outcome.bytes_per_step = talk->at("bytes_per_step").get<double>();
  if (const auto server = summary.find("server"); server != summary.end()) {
    const auto number = [&](const char* key) { return server->at(key).is_number() ? server->at(key).get<double>() : 0.0; };
    outcome.mean_staleness = number("mean_staleness"), outcome.iteration_ms = number("iteration_ms");
    outcome.predictor_ms = number("predictor_ms");
    outcome.loss_predictor_ms = number("loss_predictor_ms"), outcome.step_predictor_ms = number("step_predictor_ms");
    outcome.staleness = server->at("staleness").get<std::vector<std::pair<std::int64_t, std::int64_t>>>();
  }
  return outcome;
}

Comparison compare(const Recipe& recipe, const fs::path& runs, int together, const std::atomic<bool>& stop,
                   const std::function<void(std::size_t, std::size_t, const Contestant&, const Outcome*)>& told) {
  const std::vector<Contestant> all = contestants(recipe.compare);
  std::vector<Recipe> recipes;
  recipes.reserve(all.size());
  for (const Contestant& contestant : all) recipes.push_back(recipe_of(recipe, contestant, runs));
  tensor::synchronize(tensor::parse_device(recipe.train.device));  // a GPU is set up once, before threads ask for it at the same time
  ensure_writable_folder(runs);
  const observe::RunLock alone(observe::RunFolder::open(runs));  // a run that another process is making looks unfinished, and would go
  std::vector<std::optional<Outcome>> outcomes(all.size());
  std::mutex mutex;
  std::condition_variable ended;
  std::size_t next = 0, done = 0;
  int working = std::max(together, 1);
  std::exception_ptr problem;
  std::atomic<bool> leave = stop.load();  // or one of the runs failed: the others may have hours to go
  const auto work_through = [&] {
    while (true) {
      std::size_t i = 0;
      {
        const std::lock_guard lock(mutex);
        if (next >= all.size() || leave) return;
        i = next++;
      }
      const fs::path folder = runs / all[i].folder();
      const std::string text = recipes[i].config().toml();
      try {
        auto outcome = read_outcome(all[i], folder, text);
        if (!outcome) {
          {
            const std::lock_guard lock(mutex);
            told(done, all.size(), all[i], nullptr);
          }
          run_one(recipes[i], folder, leave);
          outcome = read_outcome(all[i], folder, text);
        }
        const std::lock_guard lock(mutex);
        if (!outcome && leave) return;
        if (!outcome) throw Error(fmt::format("{} has no summary of its run; is the disk full?", folder.string()));
        outcome->stragglers = stragglers_of(recipes[i]);
        outcomes[i] = std::move(outcome);
        told(++done, all.size(), all[i], &*outcomes[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!problem) problem = std::current_exception();
        leave = true;
      }
    }
  };
  const auto work = [&] {
    work_through();
    const std::lock_guard lock(mutex);
    if (--working == 0) ended.notify_one();
  };
  std::vector<std::jthread> threads;
  try {
    for (int i = working; i > 0; --i) threads.emplace_back(work);
  } catch (...) {
    leave = true;  // those that were started are waited for
    throw;
  }
  for (std::unique_lock lock(mutex); !ended.wait_for(lock, kBetweenLooks, [&] { return working == 0; });)
    if (stop) leave = true;
  threads.clear();
  if (problem) std::rethrow_exception(problem);
  Comparison result;
  for (auto& outcome : outcomes)
    if (outcome) result.outcomes.push_back(std::move(*outcome));
    else result.stopped = true;
  return result;
}

}  // namespace paceline::train
