#include "paceline/data/loader.h"

namespace paceline::data {
namespace {

/// Calls visit(slot, sample, stream or null) for the samples of a share. A stream is named by sample and epoch, never by the worker.
template <class Visit>
void for_each_sample(const LoaderOptions& options, std::span<const std::int64_t> share, std::int64_t epoch, Visit&& visit) {
  for (std::size_t slot = 0; slot < share.size(); ++slot) {
    if (options.augment) {
      RandomStream random(options.seed, Purpose::augment, static_cast<std::uint64_t>(share[slot]), static_cast<std::uint64_t>(epoch));
      visit(slot, share[slot], &random);
    } else {
      visit(slot, share[slot], nullptr);
    }
  }
}

class Loader final : public BatchSource {
 public:
  Loader(const Dataset& dataset, const LoaderOptions& options)
      : dataset_(dataset), options_(options), sampler_(make_sampler(dataset, options)), next_(sampler_.batches()) {}

  void start(std::int64_t epoch, std::int64_t batch, std::int64_t first_batch) override {
    sampler_.start(epoch, batch);
    epoch_ = epoch;
    next_ = first_batch;
  }

  std::int64_t batches() const override { return sampler_.batches(); }

  const Batch* next() override {
    if (next_ >= batches()) return nullptr;
    fill_batch(dataset_, options_, sampler_, epoch_, next_++, batch_);
    return &batch_;
  }

 private:
  const Dataset& dataset_;
  LoaderOptions options_;
  Sampler sampler_;
  std::int64_t epoch_ = 0, next_;  // there is no batch before start()
  Batch batch_;
};

}  // namespace

Sampler make_sampler(const Dataset& dataset, const LoaderOptions& options) {
  return {dataset.size(), options.batch, options.shuffle, options.drop_last, options.seed, options.pad ? options.workers : 1};
}

void fill_batch(const Dataset& dataset, const LoaderOptions& options, const Sampler& sampler, std::int64_t epoch, std::int64_t index,
                Batch& batch) {
  const auto share = sampler.share(index, options.rank, options.workers);
  dataset.prepare(batch, static_cast<std::int64_t>(share.size()));
  batch.global_count = sampler.count(index);
  batch.epoch = epoch;
  batch.index = index;
  for_each_sample(options, share, epoch, [&](std::size_t slot, std::int64_t sample, RandomStream* random) {
    dataset.read(sample, random, batch, static_cast<std::int64_t>(slot));
  });
}

void draw_plans(const Dataset& dataset, const LoaderOptions& options, const Sampler& sampler, std::int64_t epoch, std::int64_t index,
                std::vector<AugmentPlan>& plans) {
  const auto share = sampler.share(index, options.rank, options.workers);
  plans.resize(share.size());
  for_each_sample(options, share, epoch,
                  [&](std::size_t slot, std::int64_t sample, RandomStream* random) { plans[slot] = dataset.plan(sample, random); });
}

std::unique_ptr<BatchSource> make_loader(const Dataset& dataset, const LoaderOptions& options) {
  return std::make_unique<Loader>(dataset, options);
}

}  // namespace paceline::data
