// How fast one core feeds: CIFAR-sized images with crop and flip, and a folder of JPEGs against the decoder alone.
#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>

#include "benchmark.h"
#include "paceline/base/error.h"
#include "paceline/data/loader.h"
#include "paceline/data/picture.h"

namespace paceline::bench {
namespace {

/// Images a second that a loader without background threads gives: all the work is in this thread.
double images_per_s(const data::Dataset& dataset, std::int64_t batch, bool augment, int rounds) {
  data::LoaderOptions options;
  options.batch = batch;
  options.augment = augment;
  const auto loader = data::make_loader(dataset, options);
  std::vector<double> rates;
  for (int round = 0; round < rounds; ++round) {
    std::int64_t images = 0;
    loader->start(round, batch);
    const double took = time_of(
        [&] {
          while (const data::Batch* made = loader->next()) images += made->count;
        },
        0);
    rates.push_back(static_cast<double>(images) / took);
  }
  return median(rates);
}

}  // namespace

std::vector<Row> bench_data(const Options& options, const Say& say) {
  std::vector<Row> rows;
  const std::int64_t batch = options.batch > 0 ? options.batch : 128;
  data::DataConfig config;
  config.augment = true;
  if (!options.root.empty()) {
    config.name = "cifar10";
    config.root = options.root;
  } else {
    config.name = "random";  // the same bytes a sample; what they show does not matter for speed
    config.train_samples = 50000;
  }
  say(config.name);
  const auto images = data::make_dataset(config, data::Split::train, 0);
  rows.push_back({{"what", fmt::format("{} 3x32x32, crop and flip", config.name)},
                  {"images_per_s", images_per_s(*images, batch, true, options.rounds)}});
  config.augment = false;
  rows.push_back(
      {{"what", fmt::format("{} 3x32x32, as it is", config.name)}, {"images_per_s", images_per_s(*images, batch, false, options.rounds)}});
  return rows;
}

}  // namespace paceline::bench
