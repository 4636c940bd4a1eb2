// What a checkpoint takes of memory beside training: at most a copy of what this worker writes of it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

class CheckpointMemory : public testing::TestWithParam<std::string> {};

TEST_P(CheckpointMemory, IsACopyOfWhatTheWorkerWrites) {
  strategies::Settings settings;
  settings.strategy.name = GetParam();
  settings.optim.name = "adam";
  settings.hidden = {1400, 1400};  // 8 MB of parameters: enough for each worker to write its part
  const Folder folder;
  std::vector<double> peaks(kWorkers);
  strategies::with_workers(kWorkers, settings, [&](strategies::TestWorker& worker) {
    worker.train(1, 1);
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
  for (std::size_t rank = 0; rank < kWorkers; ++rank) {
    const auto file = checkpoint_folder(folder / "checkpoints", 1) / shard_file(rank, kWorkers);
    const auto written = static_cast<double>(std::filesystem::file_size(file));
    EXPECT_GT(written, 8e6) << "or the test says nothing";
    EXPECT_LE(peaks[rank], written + kScratch) << "worker " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, CheckpointMemory,
                         testing::Values("allreduce", "local_sgd", "diloco", "easgd", "gossip", "sgp", "ad_psgd", "stale_sync"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace paceline::train
