#include "paceline/train/memory_measure.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "paceline/base/affinity.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/comm/engine.h"
#include "paceline/tensor/memory_meter.h"
#include "paceline/train/trainer.h"
#include "paceline/train/workers.h"

namespace paceline::train {
namespace {

using memory::Category;

/// Reads a rank's meter when its forward passes and its steps end.
class MeterListener final : public observe::Listener {
 public:
  MeterListener(tensor::MemoryMeter& meter, memory::Bytes& bytes) : meter_(meter), bytes_(bytes) {}

  void watch(const tensor::Arena& arena) { ledger_ = &arena.ledger(), host_ = &arena.host_ledger(); }

  void on(const observe::Event& event) override {
    const auto* span = std::get_if<observe::Span>(&event);
    if (!span || span->lane != "step") return;
    if (span->name == "forward") held_ = std::max(held_, meter_.staying() - before_);
    if (span->name != "step") return;
    if (++steps_ > 1) {
      bytes_[Category::activations] = std::max(bytes_[Category::activations], held_);
      most_ = std::max(most_, meter_.staying_peak() - before_);
      bytes_[Category::buffers] = std::max<std::int64_t>(most_ - bytes_[Category::activations], 0);
      bytes_[Category::communication] = std::max(bytes_[Category::communication], meter_.travelling_peak());
      bytes_[Category::parameters] = ledger_->peak(tensor::Role::parameter);
      bytes_[Category::gradients] = ledger_->peak(tensor::Role::gradient);
      bytes_[Category::masters] = ledger_->peak(tensor::Role::master);
      bytes_[Category::moments] = ledger_->peak(tensor::Role::moment);
      bytes_[Category::host] = host_->peak();
    } else {
      ledger_->reset_peaks();  // a model is created whole, and then divided
    }
    before_ = meter_.staying(), held_ = 0;
    meter_.reset_peaks();
  }

 private:
  tensor::MemoryMeter& meter_;
  memory::Bytes& bytes_;
  tensor::Ledger *ledger_ = nullptr, *host_ = nullptr;
  std::int64_t before_ = 0, held_ = 0, most_ = 0, steps_ = 0;
};

void measure_rank(const Recipe& recipe, comm::Communicator& comm, int threads, const std::filesystem::path& folder, memory::Bytes& bytes) {
  tensor::MemoryMeter meter;
  observe::Bus bus;
  bus.want_spans();
  auto listener = std::make_unique<MeterListener>(meter, bytes);
  MeterListener& watcher = *listener;
  bus.add(std::move(listener));
  const SteadyClock clock;
  const std::atomic<bool> stop = false;
  Trainer trainer(recipe, {.bus = bus, .clock = clock, .stop = stop, .comm = &comm, .threads = threads});
  watcher.watch(trainer.module().arena());
  trainer.run(folder);
}

}  // namespace

std::vector<memory::Bytes> measure_memory(Recipe recipe, std::int64_t steps) {
  recipe.train.steps = steps, recipe.train.checkpoints = false, recipe.train.evaluate_every = 0, recipe.train.record_steps = false;
  recipe.train.memory_gb = 0;
  if (recipe.strategy.name == strategies::kPlan) recipe.strategy.name = strategies::kAuto;  // measure the mesh that was asked about
  recipe = resolve_for(recipe, {});
  const auto ranks = static_cast<int>(recipe.parallel.workers);
  const int threads = recipe.train.threads > 0 ? static_cast<int>(recipe.train.threads) : std::max(usable_cores() / ranks, 1);
  const TemporaryFolder folder;
  auto group = comm::local_group(ranks, recipe.comm);
  std::vector<memory::Bytes> bytes(static_cast<std::size_t>(ranks));
  std::exception_ptr problem;
  std::mutex mutex;
  std::vector<std::thread> workers;
  for (std::size_t rank = 0; rank < group.size(); ++rank)
    workers.emplace_back([&, rank] {
      try {
        measure_rank(recipe, *group[rank], threads, folder.path(), bytes[rank]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!problem) problem = std::current_exception();
        group[rank].reset();  // so that the other ranks notice
      }
    });
  for (std::thread& worker : workers) worker.join();
  if (problem) std::rethrow_exception(problem);
  return bytes;
}

}  // namespace paceline::train
