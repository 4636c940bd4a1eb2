// What overlap and compression are worth where communication is slow: two workers as two hosts, over links made as slow as 1 Gbit/s. The
// mlp of 10.5 M parameters (3072-2048-2048-10) shows compression; it has little to hide communication behind, because its largest gradient
// comes last. resnet18 computes as long as it sends, and shows overlap. One child process a row, in alternating rounds; medians.
#include <fmt/format.h>

#include <algorithm>

#include "benchmark.h"
#include "paceline/base/error.h"
#include "paceline/base/text.h"
#include "paceline/compress/compressor.h"
#include "trial.h"

namespace paceline::bench {
namespace {

constexpr std::int64_t kWorkers = 2;

struct Network {
  std::string_view key;
  std::vector<std::string> words;
  std::int64_t batch;           // of a worker
  std::int64_t warm_up, steps;  // buckets are given, so there is nothing to be chosen meanwhile
  bool compressed;              // whether compressors are tried on it
};

const Network kNetworks[] = {{"mlp", {"model.network=mlp", "model.hidden=[2048,2048]", "strategy.bucket_mb=8"}, 32, 3, 12, true},
                             {"resnet18", {"model.network=resnet18", "strategy.bucket_mb=4"}, 8, 2, 6, false}};

struct Setting {
  const Network* network;
  std::string overlap, compression;
  std::vector<double> step_s, exposed, hidden;  // one per round
  double ratio = 1, bytes_per_step = 0;         // alike in all rounds, up to what sparsifiers choose
};

std::vector<const Network*> networks_of(const Options& options) {
  std::vector<const Network*> networks;
  for (const std::string& key : items_of(options.networks.empty() ? "mlp,resnet18" : options.networks)) {
    const auto found = std::ranges::find(kNetworks, key, &Network::key);
    if (found == std::end(kNetworks)) throw ConfigError(fmt::format("bench overlap has no network '{}'; it has mlp and resnet18", key));
    networks.push_back(found);
  }
  return networks;
}

/// Of each network first the one without overlap, then the one with it, then compressors.
std::vector<Setting> settings_of(const Options& options) {
  std::vector<std::string> compressors = items_of(options.compressors);
  for (const std::string& key : compressors) find(compress::compressors(), "compressor", key);
  if (compressors.empty())
    for (const auto& entry : compress::compressors()) compressors.emplace_back(entry.key);
  std::vector<Setting> settings;
  for (const Network* network : networks_of(options)) {
    const auto add = [&](const char* overlap, const std::string& compression) {
      settings.push_back({.network = network, .overlap = overlap, .compression = compression, .step_s = {}, .exposed = {}, .hidden = {}});
    };
    add("off", "none"), add("on", "none");
    if (network->compressed)
      for (const std::string& key : compressors) add("on", key);
  }
  return settings;
}

void measure(Setting& setting, const Options& options) {
  const Network& network = *setting.network;
  std::vector<std::string> words = {"data.name=random",
                                    "data.shape=[3,32,32]",
                                    "data.train_samples=2000",
                                    "optim.name=sgd",
                                    "optim.rate=0.001",
                                    "optim.momentum=0.9",
                                    "train.device=cpu",
                                    "comm.link_gbit_per_s=1",
                                    "comm.per_host=1",
                                    "strategy.overlap=" + setting.overlap,
                                    "comm.compression=" + setting.compression};
  words.insert(words.end(), network.words.begin(), network.words.end());
  const Measured measured = run_trial({.words = words,
                                       .workers = kWorkers,
                                       .batch = (options.batch > 0 ? options.batch : network.batch) * kWorkers,
                                       .warm_up = network.warm_up,
                                       .steps = network.steps});
  setting.step_s.push_back(measured.step_s);
  setting.exposed.push_back(measured.exposed), setting.hidden.push_back(measured.hidden);
  setting.ratio = measured.ratio, setting.bytes_per_step = measured.bytes_per_step;
}

}  // namespace

std::vector<Row> bench_overlap(const Options& options, const Say& say) {
  std::vector<Setting> settings = settings_of(options);
  for (int round = 0; round < options.rounds; ++round)
    for (Setting& setting : settings) {
      say(fmt::format("{}, overlap {}, compression {}, round {} of {}", setting.network->key, setting.overlap, setting.compression,
                      round + 1, options.rounds));
      measure(setting, options);
    }
  std::vector<Row> rows;
  for (const Setting& setting : settings) {
    // Overlap is held against none, and compression against the same overlap without it.
    const auto before = std::ranges::find_if(settings, [&](const Setting& other) {
      return other.network == setting.network && other.overlap == (setting.compression == "none" ? "off" : "on");
    });
    const double step_s = median(setting.step_s), exposed = median(setting.exposed);
    rows.push_back({{"network", std::string(setting.network->key)},
                    {"overlap", setting.overlap},
                    {"compression", setting.compression},
                    {"step_ms", step_s * 1e3},
                    {"exposed", exposed},
                    {"hidden", median(setting.hidden)},
                    {"exposed_ms", exposed * step_s * 1e3},
                    {"mb_per_step", setting.bytes_per_step / 1e6},
                    {"ratio", setting.ratio},
                    {"speed_up", median(before->step_s) / step_s}});
  }
  return rows;
}

}  // namespace paceline::bench
