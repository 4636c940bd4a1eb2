// What overlap and compression are worth where communication is slow: two workers as two hosts, over links made as slow as 1 Gbit/s, train
// the mlp of 10.5 M parameters (3072-2048-2048-10). One child process a row, in alternating rounds; medians.
#include <fmt/format.h>

#include "benchmark.h"
#include "paceline/base/text.h"
#include "paceline/compress/compressor.h"
#include "trial.h"

namespace paceline::bench {
namespace {

constexpr std::int64_t kWorkers = 2, kBatch = 32;  // of a worker
constexpr std::int64_t kWarmUp = 3, kSteps = 12;   // buckets are given, so there is nothing to be chosen meanwhile

struct Setting {
  std::string overlap, compression;
  std::vector<double> step_s, exposed, hidden;  // one a round
  double ratio = 1, bytes_per_step = 0;         // alike in all rounds, up to what sparsifiers choose
};

std::vector<Setting> settings_of(const Options& options) {
  std::vector<Setting> settings(2);
  settings[0].overlap = "off", settings[1].overlap = "on";
  for (Setting& setting : settings) setting.compression = "none";
  const auto add = [&](std::string_view key) { settings.emplace_back().overlap = "on", settings.back().compression = key; };
  for (const std::string& key : items_of(options.compressors)) add(find(compress::compressors(), "compressor", key).key);
  if (options.compressors.empty())
    for (const auto& entry : compress::compressors()) add(entry.key);
  return settings;
}

void measure(Setting& setting, const Options& options) {
  const std::int64_t batch = options.batch > 0 ? options.batch : kBatch;
  const Measured measured =
      run_trial({.words = {"model.network=mlp", "model.hidden=[2048,2048]", "data.name=random", "data.shape=[3,32,32]",
                           "data.train_samples=2000", "optim.name=sgd", "optim.rate=0.001", "optim.momentum=0.9", "train.device=cpu",
                           "comm.link_gbit_per_s=1", "comm.per_host=1", "strategy.bucket_mb=8", "strategy.overlap=" + setting.overlap,
                           "comm.compression=" + setting.compression},
                 .workers = kWorkers,
                 .batch = batch * kWorkers,
                 .warm_up = kWarmUp,
                 .steps = kSteps});
  setting.step_s.push_back(measured.step_s);
  setting.exposed.push_back(measured.exposed), setting.hidden.push_back(measured.hidden);
  setting.ratio = measured.ratio, setting.bytes_per_step = measured.bytes_per_step;
}

}  // namespace

std::vector<Row> bench_overlap(const Options& options, const Say& say) {
  std::vector<Setting> settings = settings_of(options);
  for (int round = 0; round < options.rounds; ++round)
    for (Setting& setting : settings) {
      say(fmt::format("overlap {}, compression {}, round {} of {}", setting.overlap, setting.compression, round + 1, options.rounds));
      measure(setting, options);
    }
  std::vector<Row> rows;
  for (const Setting& setting : settings) {
    // Overlap is held against none, and compression against the same overlap without it.
    const Setting& before = settings[setting.compression == "none" ? 0 : 1];
    const double step_s = median(setting.step_s), exposed = median(setting.exposed);
    rows.push_back({{"overlap", setting.overlap},
                    {"compression", setting.compression},
                    {"step_ms", step_s * 1e3},
                    {"exposed", exposed},
                    {"hidden", median(setting.hidden)},
                    {"exposed_ms", exposed * step_s * 1e3},
                    {"mb_per_step", setting.bytes_per_step / 1e6},
                    {"ratio", setting.ratio},
                    {"speed_up", median(before.step_s) / step_s}});
  }
  return rows;
}

}  // namespace paceline::bench
