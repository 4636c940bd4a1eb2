#include "paceline/train/comparison.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/comm/world.h"
#include "paceline/observe/metrics.h"
#include "paceline/observe/predictor_log.h"
#include "paceline/observe/run_folder.h"
#include "paceline/observe/run_lock.h"
#include "paceline/observe/summary.h"
#include "paceline/tensor/device.h"
#include "paceline/train/workers.h"

namespace paceline::train {
namespace {

namespace fs = std::filesystem;

constexpr auto kBetweenLooks = std::chrono::milliseconds(50);  // how often the waiting thread checks whether to stop

/// Runs silently, with everything in the run's folder.
void run_one(Recipe recipe, const fs::path& path, const std::atomic<bool>& stop) {
  const SteadyClock clock;
  observe::Bus bus;
  Workers workers(recipe, comm::World{},
                  {.bus = bus, .clock = clock, .stop = stop});  // rejects invalid settings before anything is written
  std::error_code ignored;
  fs::remove_all(path, ignored);  // the remains of an interrupted run
  fs::create_directories(path);
  const auto folder = observe::RunFolder::open(path);
  write_atomically(folder.recipe(), recipe.config().toml());
  bus.add(std::make_unique<observe::MetricsLog>(folder.metrics(), clock));
  bus.add(std::make_unique<observe::PredictorLog>(folder.predictions()));
  bus.add(std::make_unique<observe::Summary>(folder.summary()));
  try {
    workers.run(path);
  } catch (const Diverged& problem) {  // divergence is a result, too
    write_atomically(folder.summary(), nlohmann::json{{"diverged", problem.what()}}.dump(2) + "\n");
  }
}

void keep_those_below(const char* key, std::int64_t workers, std::int64_t most, std::vector<std::int64_t>& slow) {
  for (const std::int64_t number : slow)
    if (number >= most)
      throw ConfigError(fmt::format("timing.{}: no run of this comparison has a worker {}; the {} of the largest run are numbered from 0",
                                    key, number, most));
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

void apply(Config& config, const std::vector<std::string>& settings, const std::string& where) {
  for (const std::string& setting : settings) {
    try {
      config.set(setting);
    } catch (const ConfigError& problem) {
      throw ConfigError(fmt::format("{}: {}", where, problem.what()));
    }
  }
}

/// {seed} stands for the seed of the run, so that a setting can name a file of an earlier run with the same seed.
std::vector<std::string> with_seed(std::vector<std::string> settings, std::int64_t seed) {
  constexpr std::string_view kMark = "{seed}";
  for (std::string& setting : settings)
    for (auto at = setting.find(kMark); at != std::string::npos; at = setting.find(kMark))
      setting.replace(at, kMark.size(), std::to_string(seed));
  return settings;
}

/// A single worker trains on parameters in its own memory: under a virtual clock, no transfers are charged.
bool charges_no_transfers(const Recipe& recipe, const Contestant& contestant) {
  const auto servers = recipe.servers();
  return servers && contestant.alone() && !recipe.timing.recorded() &&
         servers->executor_on(tensor::parse_device(recipe.train.device).is_cuda()).make.virtual_clock;
}

/// The runs of one stage of a comparison.
class Stage {
 public:
  using Told = std::function<void(std::size_t, const Contestant&, const Outcome*)>;  // how many are done

  Stage(const Recipe& recipe, const fs::path& runs, std::vector<Contestant> contestants, Told told)
      : runs_(runs), contestants_(std::move(contestants)), told_(std::move(told)), outcomes_(contestants_.size()) {
    recipes_.reserve(contestants_.size());
    for (const Contestant& contestant : contestants_) recipes_.push_back(recipe_of(recipe, contestant, runs));
  }

  std::size_t size() const { return contestants_.size(); }

  /// Empty for a run that was skipped because the comparison was asked to stop.
  std::vector<std::optional<Outcome>> run(int together, const std::atomic<bool>& stop) {
    leave_ = stop.load();
    working_ = std::max(together, 1);
    std::vector<std::jthread> threads;
    try {
      for (int i = working_; i > 0; --i)
        threads.emplace_back([this] {
          while (make_next()) {
          }
          const std::lock_guard lock(mutex_);
          if (--working_ == 0) ended_.notify_one();
        });
    } catch (...) {
      leave_ = true;  // waits for those that were started
      throw;
    }
    for (std::unique_lock lock(mutex_); !ended_.wait_for(lock, kBetweenLooks, [&] { return working_ == 0; });)
      if (stop) leave_ = true;
    threads.clear();
    if (problem_) std::rethrow_exception(problem_);
    return std::move(outcomes_);
  }

 private:
  /// Returns false if there is nothing more to do.
  bool make_next() {
    std::size_t i = 0;
    {
      const std::lock_guard lock(mutex_);
      if (next_ >= size() || leave_) return false;
      i = next_++;
    }
    try {
      make(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!problem_) problem_ = std::current_exception();
      leave_ = true;
    }
    return true;
  }

  void make(std::size_t i) {
    const fs::path folder = runs_ / contestants_[i].folder();
    const std::string text = recipes_[i].config().toml();
    auto outcome = read_outcome(contestants_[i], folder, text);
    if (!outcome) {
      {
        const std::lock_guard lock(mutex_);
        told_(done_, contestants_[i], nullptr);
      }
      run_one(recipes_[i], folder, leave_);
      outcome = read_outcome(contestants_[i], folder, text);
    }
    const std::lock_guard lock(mutex_);
    if (!outcome && leave_) return;
    if (!outcome) throw Error(fmt::format("{} has no summary.json of its run; check whether the disk is full", folder.string()));
    outcome->stragglers = stragglers_of(recipes_[i]);
    outcomes_[i] = std::move(outcome);
    told_(++done_, contestants_[i], &*outcomes_[i]);
  }

  fs::path runs_;
  std::vector<Contestant> contestants_;
  Told told_;
  std::vector<Recipe> recipes_;
  std::vector<std::optional<Outcome>> outcomes_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t next_ = 0, done_ = 0;
  int working_ = 0;
  std::exception_ptr problem_;
  std::atomic<bool> leave_ = false;  // set if a run failed or the comparison is to stop, since the other runs may have hours to go
};

Contestant tuning_run(const Entrant& entrant, const std::vector<std::string>& point, std::int64_t seed) {
  Contestant made = entrant.contestant;
  made.point = point, made.seed = seed, made.tuning = true;
  return made;
}

/// Every point of the grids of those algorithms that have something to choose.
std::vector<Contestant> tuning_runs(const std::vector<Entrant>& all, const CompareConfig& config) {
  std::vector<Contestant> runs;
  for (const Entrant& entrant : all)
    for (const auto& point : entrant.points)
      for (const std::int64_t seed : config.tuning_seeds)
        if (entrant.chooses()) runs.push_back(tuning_run(entrant, point, seed));
  return runs;
}

/// Adds points to the grids whose choices lie at an edge, and returns their runs. A point that the settings do not allow is the end of a
/// grid.
std::vector<Contestant> widen(std::vector<Entrant>& all, const std::vector<Choice>& choices, const Recipe& recipe, const fs::path& runs) {
  std::vector<Contestant> fresh;
  auto choice = choices.begin();
  for (Entrant& entrant : all) {
    if (!entrant.chooses()) continue;
    for (const auto& point : points_beyond(entrant, *choice++)) {
      try {
        recipe_of(recipe, tuning_run(entrant, point, recipe.compare.tuning_seeds.front()), runs);
      } catch (const ConfigError&) {
        continue;
      }
      entrant.points.push_back(point), ++entrant.added;
      for (const std::int64_t seed : recipe.compare.tuning_seeds) fresh.push_back(tuning_run(entrant, point, seed));
    }
  }
  return fresh;
}

/// Algorithms with something to choose get the point in `choices`; the others get their only point.
std::vector<Contestant> final_runs(const std::vector<Entrant>& all, const std::vector<Choice>& choices, const CompareConfig& config) {
  std::vector<Contestant> runs;
  auto choice = choices.begin();
  for (const Entrant& entrant : all) {
    Contestant contestant = entrant.contestant;
    contestant.point = entrant.chooses() && choice != choices.end() ? (choice++)->contestant.point : entrant.points.front();
    for (const std::int64_t seed : config.seeds) contestant.seed = seed, runs.push_back(contestant);
  }
  return runs;
}

/// Tuning runs use only training samples; final runs are evaluated on the test set.
void check_held_out(const Recipe& recipe, bool chooses) {
  if (recipe.data.held_out > 0)
    throw ConfigError(fmt::format(
        "data.held_out={}: a comparison tunes on compare.held_out samples and tests on the test set; set compare.held_out instead",
        recipe.data.held_out));
  if (!chooses) return;
  const auto all = data::make_dataset(recipe.data, data::Split::train, static_cast<std::uint64_t>(recipe.train.seed))->size();
  if (recipe.compare.held_out >= all)
    throw ConfigError(fmt::format("compare.held_out={} leaves none of the {} training samples of '{}'; use fewer, for example {}",
                                  recipe.compare.held_out, all, recipe.data.name, std::max<std::int64_t>(all / 10, 1)));
}

}  // namespace

Recipe recipe_of(const Recipe& recipe, const Contestant& contestant, const fs::path& runs) {
  Recipe made = recipe;
  Config config = made.config();
  apply(config, contestant.clock_settings, fmt::format("compare.clocks, '{}'", contestant.clock));
  const std::string where = fmt::format("compare.algorithms, '{}'", contestant.algorithm);
  apply(config, with_seed(contestant.settings, contestant.seed), where), apply(config, contestant.point, where + " with its grid");
  std::int64_t most = 1;
  for (const Entrant& entrant : entrants(recipe.compare)) most = std::max(most, entrant.contestant.workers);
  keep_those_below("slow_workers", contestant.workers, most, made.timing.slow_workers);
  keep_those_below("slow_links", contestant.workers, most, made.timing.slow_links);
  if (contestant.tuning) made.data.held_out = recipe.compare.held_out;
  made.compare = {};  // this run is the same, whatever else is compared
  made.train.seed = contestant.seed;
  made.parallel.workers = contestant.workers;
  made.data.batch *= contestant.workers;
  made.train.checkpoints = false;
  made.train.runs = runs.string();
  made.train.name = contestant.folder();
  if (charges_no_transfers(made, contestant)) made.timing.transfers = false;
  validate(made);
  if (made.servers() && made.ps.by_processes())
    throw ConfigError(
        fmt::format("compare runs all workers of '{}' in its own process; use ps.executor=virtual or threads", contestant.algorithm));
  return made;
}

Comparison compare(const Recipe& recipe, const fs::path& runs, int together, const std::atomic<bool>& stop,
                   const std::function<void(std::size_t, std::size_t, const Contestant&, const Outcome*)>& told) {
  std::vector<Entrant> all = entrants(recipe.compare);
  std::size_t before = 0, whole = 0;
  const auto tell = [&](std::size_t done, const Contestant& who, const Outcome* outcome) { told(before + done, whole, who, outcome); };
  std::vector<Contestant> untried = tuning_runs(all, recipe.compare);
  for (const auto& stage : {untried, final_runs(all, {}, recipe.compare)})
    whole += Stage(recipe, runs, stage, tell).size();  // rejects invalid settings before anything is run
  check_held_out(recipe, !untried.empty());
  tensor::synchronize(
      tensor::parse_device(recipe.train.device));  // initialises a GPU once, before several threads need it at the same time
  ensure_writable_folder(runs);
  const observe::RunLock alone(
      observe::RunFolder::open(runs));  // otherwise a run that another process is making would look unfinished, and be removed
  Comparison result;
  std::vector<Outcome> tried;
  for (std::int64_t widened = 0; !untried.empty(); ++widened) {
    for (auto& outcome : Stage(recipe, runs, untried, tell).run(together, stop))
      if (outcome) tried.push_back(std::move(*outcome));
      else result.stopped = true;
    if (result.stopped) return result;
    before += untried.size();
    result.choices.clear();
    for (const Entrant& entrant : all)
      if (entrant.chooses()) result.choices.push_back(choose(entrant, tried));
    untried.clear();
    if (widened < recipe.compare.widen) untried = widen(all, result.choices, recipe, runs);
    whole += untried.size();
  }
  for (auto& outcome : Stage(recipe, runs, final_runs(all, result.choices, recipe.compare), tell).run(together, stop))
    if (outcome) result.outcomes.push_back(std::move(*outcome));
    else result.stopped = true;
  return result;
}

}  // namespace paceline::train
