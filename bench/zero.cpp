// ZeRO's stages against plain data parallelism: samples per second, traffic and memory of a gpt on workers that are threads of this host,
// one core each where there are enough. All stages are set up at the same time and measured in alternating rounds. Plain data parallelism
// is an allreduce and a whole update on every worker.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <future>

#include "benchmark.h"
#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/base/text.h"
#include "paceline/comm/engine.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/graph/registry.h"
#include "paceline/nn/graph_module.h"
#include "paceline/sharded/gathering_model.h"
#include "paceline/strategies/registry.h"
#include "paceline/tensor/device.h"
#include "peer.h"

namespace paceline::bench {
namespace {

constexpr int kStages = 4, kSteps = 2;  // steps: of a round
constexpr std::int64_t kPositions = 64, kVocabulary = 512, kBatch = 4;
constexpr double kBucketMb = 1;
constexpr std::int64_t kBytes = 4;  // of a value

struct Size {
  std::int64_t layers = 6, width = 256;
};

Size size_of(const Options& options) {
  const std::vector<std::string> items = items_of(options.sizes);
  if (items.empty()) return {};
  std::int64_t numbers[2] = {};
  if (items.size() == 2)
    for (std::size_t i = 0; i < 2; ++i)
      if (items[i].find_first_not_of("0123456789") == std::string::npos && items[i].size() < 6) numbers[i] = std::stoll(items[i]);
  if (numbers[0] < 1 || numbers[1] < 4 || numbers[1] % 4 != 0)
    throw ConfigError(
        fmt::format("bench zero --sizes '{}' is not LAYERS,WIDTH with a width divisible by 4, for example 6,256", options.sizes));
  return {numbers[0], numbers[1]};
}

/// What one worker found of one stage.
struct Found {
  std::vector<double> step_s, cpu_s;  // by round
  double bytes_per_step = 0, peak = 0, elements = 0, unit = 0;
};

/// Of this thread: other programs on the host do not stretch it, but waits are not in it either.
Nanoseconds cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
}

class ZeroWorker {
 public:
  ZeroWorker(const Size& size, std::int64_t batch, int stage, std::unique_ptr<comm::Communicator> comm) : comm_(std::move(comm)) {
    const graph::ModelConfig config{.network = "gpt",
                                    .input = {kPositions},
                                    .classes = kVocabulary,
                                    .layers = size.layers,
                                    .width = size.width,
                                    .heads = 4,
                                    .dropout = 0};
    nn::GraphModule::Options made;
    made.allocate = data_parallel::allocate_from(*comm_);
    model_ = std::make_shared<nn::GraphModule>(graph::make_graph(config), made);
    if (stage >= 2) model_ = std::make_shared<sharded::GatheringModel>(model_, *comm_, clock_, stage);
    strategy_ =
        strategies::make_strategy({{.name = "allreduce", .bucket_mb = kBucketMb, .update = stage == 0 ? "whole" : "auto"}, {.zero = stage}},
                                  {.model = *model_, .optim = optim_, .mesh = mesh_, .bus = bus_, .clock = clock_, .compress = compress_});
    batch_.inputs = at::randint(kVocabulary, {batch, kPositions}, at::kLong);
    batch_.targets = at::randint(kVocabulary, {batch, kPositions}, at::kLong);
    batch_.global_samples = batch * comm_->size();
    make_steps(1);
    model_->arena().ledger().reset_peaks();
  }

  void measure(Found& found) {
    comm_->run(comm::barrier());
    const std::int64_t sent = strategy_->traffic().bytes_sent;
    const Nanoseconds began = clock_.now(), computed = cpu_time();
    make_steps(kSteps);
    found.step_s.push_back(seconds(clock_.now() - began) / kSteps);
    found.cpu_s.push_back(seconds(cpu_time() - computed) / kSteps);
    found.bytes_per_step = static_cast<double>(strategy_->traffic().bytes_sent - sent) / kSteps;
    tensor::Arena& arena = model_->arena();
    found.peak = static_cast<double>(arena.ledger().peak()), found.elements = static_cast<double>(arena.length());
    for (const nn::Unit& unit : model_->units())
      found.unit = std::max(found.unit, static_cast<double>(arena.range_of(unit.first_entry, unit.last_entry).count()));
  }

 private:
  void make_steps(int steps) {
    for (int i = 0; i < steps; ++i) strategy_->step(batch_, {.step = ++step_, .rate = optim_.rate});
  }

  std::unique_ptr<comm::Communicator> comm_;
  comm::Mesh mesh_{*comm_};
  SteadyClock clock_;
  observe::Bus bus_;
  compress::CompressConfig compress_;
  optim::OptimConfig optim_ = {.name = "adamw", .rate = 1e-4};
  std::shared_ptr<nn::Model> model_;
  std::unique_ptr<step::Strategy> strategy_;
  step::Batch batch_;
  std::int64_t step_ = 0;
};

/// Bytes of a rank, with what is under way: from stage 2 on a unit's gradients, in stage 2 those of two buckets before it, and in stage 3
/// the parameters of two units.
double formula(int stage, const Found& found, int workers) {
  const double all = kBytes * found.elements, own = all / workers, unit = kBytes * found.unit;
  switch (stage) {
    case 0: return 4 * all;
    case 1: return 2 * all + 2 * own;
    case 2: return all + 3 * own + unit + 2 * kBucketMb * (1 << 20);
    default: return 4 * own + 3 * unit;
  }
}

using Stages = std::vector<Found>;

Stages play_stages(const Size& size, std::int64_t batch, int rounds, std::vector<std::unique_ptr<comm::Communicator>> comms, int index,
                   int workers) {
  const OwnCores cores(index, workers);
  tensor::configure_libtorch(c10::Device(c10::kCPU), tensor::Precision::fp32, 1, true);
  std::vector<std::unique_ptr<ZeroWorker>> stages;
  for (int stage = 0; stage < kStages; ++stage)
    stages.push_back(std::make_unique<ZeroWorker>(size, batch, stage, std::move(comms[static_cast<std::size_t>(stage)])));
  Stages found(kStages);
  for (int round = 0; round < rounds; ++round)
    for (std::size_t stage = 0; stage < stages.size(); ++stage) stages[stage]->measure(found[stage]);
  return found;
}

Stages measure(const Size& size, std::int64_t batch, int rounds, int workers) {
  std::vector<std::vector<std::unique_ptr<comm::Communicator>>> comms(static_cast<std::size_t>(workers));  // by worker and stage
  for (int stage = 0; stage < kStages; ++stage) {
    auto group = comm::local_group(workers);
    for (std::size_t i = 0; i < group.size(); ++i) comms[i].push_back(std::move(group[i]));
  }
  std::vector<std::future<Stages>> ranks;
  for (int i = 0; i < workers; ++i)
    ranks.push_back(
        std::async(std::launch::async, play_stages, size, batch, rounds, std::move(comms[static_cast<std::size_t>(i)]), i, workers));
  Stages slowest = ranks.front().get();
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const Stages other = ranks[i].get();
    for (std::size_t stage = 0; stage < slowest.size(); ++stage)
      for (std::size_t round = 0; round < slowest[stage].step_s.size(); ++round)
        slowest[stage].step_s[round] = std::max(slowest[stage].step_s[round], other[stage].step_s[round]);
  }
  return slowest;
}

/// PyTorch's counterparts, whose plain one is its DistributedDataParallel; a row with the reason for what its version cannot do.
void add_peers(std::vector<Row>& rows, const std::string& python, const Size& size, std::int64_t batch, int rounds, int workers) {
  const nlohmann::json modes = run_peer_with(python, "pytorch_zero.py",
                                             {{"workers", workers},
                                              {"layers", size.layers},
                                              {"width", size.width},
                                              {"vocabulary", kVocabulary},
                                              {"positions", kPositions},
                                              {"batch", batch},
                                              {"steps", kSteps},
                                              {"rounds", rounds}})
                                   .at("modes");
  for (const ZeroPeer& peer : kZeroPeers) {
    const nlohmann::json& found = modes.at(peer.mode);
    Row row = {{"workers", workers}, {"stage", peer.stage}, {"peer", peer.name}};
    if (found.contains("reason")) {
      row["reason"] = found.at("reason");
    } else {
      const auto step_s = found.at("seconds").get<std::vector<double>>(), plain = modes.at("ddp").at("seconds").get<std::vector<double>>();
      std::vector<double> ratios;
      for (std::size_t round = 0; round < step_s.size(); ++round) ratios.push_back(plain[round] / step_s[round]);
      row["samples_per_s"] = static_cast<double>(batch * workers) / median(step_s), row["of_plain"] = median(ratios);
    }
    rows.push_back(std::move(row));
  }
}

}  // namespace

std::vector<Row> bench_zero(const Options& options, const Say& say) {
  const Size size = size_of(options);
  const std::int64_t batch = options.batch > 0 ? options.batch : kBatch;
  const std::string python = options.peer ? python_if_any(options) : "";
  std::vector<Row> rows;
  for (const int workers : {2, 4}) {
    say(fmt::format("gpt of {} layers and width {}, {} workers", size.layers, size.width, workers));
    const Stages stages = measure(size, batch, options.rounds, workers);
    for (int stage = 0; stage < kStages; ++stage) {
      const Found &found = stages[static_cast<std::size_t>(stage)], &plain = stages.front();
      std::vector<double> ratios, cpu_ratios;  // of neighbours in time: the load of the host changes from round to round
      for (std::size_t round = 0; round < found.step_s.size(); ++round) {
        ratios.push_back(plain.step_s[round] / found.step_s[round]);
        cpu_ratios.push_back(found.cpu_s[round] / plain.cpu_s[round]);
      }
      const double step_s = median(found.step_s), should = formula(stage, found, workers);
      rows.push_back({{"workers", workers},
                      {"stage", stage},
                      {"peer", ""},
                      {"parameters_m", found.elements / 1e6},
                      {"samples_per_s", static_cast<double>(batch * workers) / step_s},
                      {"of_plain", median(ratios)},
                      {"cpu_of_plain", median(cpu_ratios)},
                      {"mb_per_step", found.bytes_per_step / 1e6},
                      {"traffic_of_plain", found.bytes_per_step / plain.bytes_per_step},
                      {"peak_mb", found.peak / 1e6},
                      {"formula_mb", should / 1e6},
                      {"of_formula", found.peak / should}});
    }
    if (python.empty()) continue;
    say(fmt::format("the same in PyTorch, {} workers", workers));
    add_peers(rows, python, size, batch, options.rounds, workers);
  }
  return rows;
}

}  // namespace paceline::bench
