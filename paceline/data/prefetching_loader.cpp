// A ring of slots: batch k of the epoch goes to slot k mod slots, whichever thread makes it, and next() takes the slots in order. So
// threads affect when a batch is ready, never its content. There is one slot more than `ahead`, because the trainer keeps the batch that it
// got last.
#include "paceline/data/prefetching_loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace paceline::data {
namespace {

class PrefetchingLoader final : public BatchSource {
 public:
  PrefetchingLoader(const Dataset& dataset, const LoaderOptions& options, int threads, int ahead)
      : dataset_(dataset),
        options_(options),
        sampler_(make_sampler(dataset, options)),
        slots_(static_cast<std::size_t>(std::max(ahead, 1)) + 1) {
    threads_.reserve(static_cast<std::size_t>(threads));
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }

  ~PrefetchingLoader() override {
    for (auto& thread : threads_) thread.request_stop();  // all at once; their destructors then wait for each
  }

  void start(std::int64_t epoch, std::int64_t batch, std::int64_t first_batch) override {
    std::unique_lock lock(mutex_);
    next_ = end_ = claimed_;  // no thread begins another batch of the old epoch
    changed_.wait(lock, [&] { return busy_ == 0; });
    sampler_.start(epoch, batch);
    epoch_ = epoch;
    end_ = std::max(sampler_.batches(), first_batch);
    claimed_ = next_ = first_batch;
    holding_ = false;
    for (Slot& slot : slots_) slot.ready = -1;
    changed_.notify_all();
  }

  std::int64_t batches() const override { return sampler_.batches(); }

  const Batch* next() override {
    std::unique_lock lock(mutex_);
    if (holding_) {
      holding_ = false;
      ++next_;  // frees the slot of the batch that the trainer held
      changed_.notify_all();
    }
    if (next_ >= end_) return nullptr;
    Slot& slot = slot_of(next_);
    changed_.wait(lock, [&] { return slot.ready == next_; });
    if (slot.problem) {
      next_ = end_ = claimed_;  // the epoch ends here
      std::rethrow_exception(slot.problem);
    }
    holding_ = true;
    return &slot.batch;
  }

 private:
  struct Slot {
    Batch batch;
    std::int64_t ready = -1;  // index of the batch in it
    std::exception_ptr problem;
  };

  Slot& slot_of(std::int64_t index) { return slots_[static_cast<std::size_t>(index) % slots_.size()]; }

  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto may_begin = [&] { return claimed_ < end_ && claimed_ < next_ + static_cast<std::int64_t>(slots_.size()); };
    while (changed_.wait(lock, stop, may_begin)) {
      const std::int64_t index = claimed_++;
      Slot& slot = slot_of(index);
      ++busy_;
      lock.unlock();
      std::exception_ptr problem;
      try {
        fill_batch(dataset_, options_, sampler_, epoch_, index, slot.batch);
      } catch (...) {
        problem = std::current_exception();
      }
      lock.lock();
      --busy_;
      slot.problem = problem;
      slot.ready = index;
      changed_.notify_all();
    }
  }

  const Dataset& dataset_;
  const LoaderOptions options_;
  Sampler sampler_;         // modified only while no thread is busy
  std::int64_t epoch_ = 0;  // likewise
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Slot> slots_;
  std::int64_t next_ = 0;              // the batch that the trainer holds, or will get next
  std::int64_t claimed_ = 0;           // the first that no thread has claimed
  std::int64_t end_ = 0;               // of the epoch
  int busy_ = 0;                       // threads inside fill_batch
  bool holding_ = false;               // the trainer holds batch next_
  std::vector<std::jthread> threads_;  // last member, so that they end before what they use is destroyed
};

}  // namespace

std::unique_ptr<BatchSource> make_prefetching_loader(const Dataset& dataset, const LoaderOptions& options, int threads, int ahead) {
  if (threads <= 0) return make_loader(dataset, options);
  return std::make_unique<PrefetchingLoader>(dataset, options, threads, ahead);
}

}  // namespace paceline::data
