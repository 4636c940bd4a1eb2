#include "paceline/train/step_measure.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "paceline/base/temporary_folder.h"
#include "paceline/train/trainer.h"
#include "paceline/train/workers.h"

namespace paceline::train {

namespace {

constexpr std::int64_t kForEver = 1'000'000;  // epochs

double median_step(Recipe recipe, int threads, std::int64_t steps) {
  recipe.parallel = {};
  recipe.strategy.name = strategies::kSingle;
  recipe.train.steps = steps, recipe.train.epochs = kForEver;
  recipe.train.checkpoints = false, recipe.train.evaluate_every = 0, recipe.train.trace = false;
  recipe = resolve_for(recipe, {});
  const TemporaryFolder folder;
  observe::Bus bus;
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  return Trainer(recipe, {.bus = bus, .clock = clock, .stop = stop, .threads = threads, .predicts = false}).run(folder.path()).step_s;
}

}  // namespace

double measure_step(const Recipe& recipe, int threads, std::int64_t steps, int runs) {
  std::vector<double> seconds;
  for (int run = 0; run < runs; ++run) seconds.push_back(median_step(recipe, threads, steps));
  std::ranges::sort(seconds);
  return seconds.at(seconds.size() / 2);
}

}  // namespace paceline::train
