// What a checkpoint takes of memory beside training: at most a copy of what this worker writes of it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "paceline/ps/consistency.h"
#include "paceline/tensor/memory_meter.h"
#include "paceline/train/checkpoint_index.h"
#include "paceline/train/checkpointer.h"
#include "paceline/train/weights.h"
#include "runs.h"
#include "tests/strategies/workers.h"

namespace paceline::train {
namespace {

constexpr int kWorkers = 2;
constexpr double kScratch = 1.5e6;  // of collectives and headers, whatever the size of the model

struct MemoryCase {
  std::string strategy;
  std::string executor = {};  // of a parameter server, which looks like one worker; empty: there is none
  bool gpu = false;           // the copy is in host memory all the same
  int ranks() const { return executor.empty() ? kWorkers : 1; }
};

strategies::Settings settings_of(const MemoryCase& test) {
  strategies::Settings settings;
  settings.strategy.name = test.strategy;
  settings.optim.name = "adam";
  if (test.gpu) settings.device = c10::Device(c10::kCUDA, 0);
  settings.hidden = {1400, 1400};  // 8 MB of parameters: enough for each worker to write its part
  if (test.executor.empty()) return settings;
  central::Settings& servers = settings.servers;
  servers.workers = kWorkers, servers.ps = strategies::paired(test.strategy, servers.ps), servers.ps.executor = test.executor;
  const bool one_chooses = ps::consistency_kind(servers.ps.consistency).chooses;
  servers.ps.servers = test.executor == "threads" && !one_chooses ? 2 : 1;
  try {
    servers.validate(settings.optim, settings.compression);
  } catch (const ConfigError&) {  // a rule with moments of its own
    settings.optim.name = "sgd";
  }
  return settings;
}

class CheckpointMemory : public testing::TestWithParam<MemoryCase> {};

TEST_P(CheckpointMemory, IsACopyOfWhatTheWorkerWrites) {
  const int ranks = GetParam().ranks();
  const Folder folder;
  std::vector<double> peaks(static_cast<std::size_t>(ranks));
  strategies::with_workers(ranks, settings_of(GetParam()), [&](strategies::TestWorker& worker) {
    worker.train(1, 4);
    observe::Bus bus;
    const SteadyClock clock;
    Checkpointer checkpointer(worker.comm(), bus, clock, worker.comm().rank() == 0 ? folder.path() : std::filesystem::path(), {});
    const tensor::MemoryMeter meter;
    CheckpointMetadata metadata;
    metadata.position.step = 1, metadata.recipe = "[train]\n", metadata.network = "mlp";
    {
      worker.strategy().agree();
      std::vector<NamedTensor> state = model_tensors(worker.module(), worker.comm().rank());
      for (NamedTensor& item : worker.strategy().save()) state.push_back(std::move(item));
      checkpointer.begin(metadata, state, /*good=*/true);
    }
    peaks[static_cast<std::size_t>(worker.comm().rank())] = static_cast<double>(meter.peak());
    worker.strategy().resume_training();
    EXPECT_TRUE(checkpointer.finish());
  });
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    const auto file = ranks == 1 ? checkpoint_file(folder / "checkpoints", 1)
                                 : checkpoint_folder(folder / "checkpoints", 1) / shard_file(at, static_cast<std::size_t>(ranks));
    const auto written = static_cast<double>(std::filesystem::file_size(file));
    EXPECT_GT(written, 8e6) << "or the test says nothing";
    EXPECT_LE(peaks[at], written + kScratch) << "worker " << rank;
  }
}

std::vector<MemoryCase> cases() {
  std::vector<MemoryCase> all;
  for (const char* strategy : {"allreduce", "local_sgd", "diloco", "easgd", "gossip", "sgp", "ad_psgd", "stale_sync"})
    all.push_back({strategy});
  for (const auto& row : strategies::strategies())
    for (const char* executor : {"threads", "virtual"})
      if (row.make.centralised()) all.push_back({std::string(row.key), executor});
  if (!at::hasCUDA()) return all;
  for (MemoryCase test : std::vector<MemoryCase>(all)) {
    if (test.strategy == "ad_psgd") continue;  // its workers exchange messages in host memory
    test.gpu = true;
    all.push_back(test);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Of, CheckpointMemory, testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.strategy + (test.param.executor.empty() ? "" : "_" + test.param.executor) + (test.param.gpu ? "_Gpu" : "");
});

}  // namespace
}  // namespace paceline::train
