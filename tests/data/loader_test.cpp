// Order, shares and prefetching: every sample exactly once whatever the number of workers, the same bits whatever the number of threads.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "paceline/data/prefetching_loader.h"
#include "tests/data/fixtures.h"

namespace paceline::data {
namespace {

/// A set whose sample i is the number i; one of them can be broken.
class Numbers final : public Dataset {
 public:
  explicit Numbers(std::int64_t size, std::int64_t broken = -1) : size_(size), broken_(broken) {}
  const Info& info() const override { return info_; }
  std::int64_t size() const override { return size_; }
  void prepare(Batch& batch, std::int64_t count) const override {
    batch.count = count;
    batch.inputs.resize(static_cast<std::size_t>(count));
    batch.targets.resize(static_cast<std::size_t>(count));
  }
  void read(std::int64_t index, RandomStream* random, Batch& batch, std::int64_t slot) const override {
    if (index == broken_) throw DataError("sample", "is broken");
    batch.inputs[slot] = random ? random->uniform() : 0.0f;
    batch.targets[slot] = index;
  }

 private:
  Info info_{.key = "numbers", .input = {1}, .classes = 1, .tokens = false, .mean = {}, .deviation = {}};
  std::int64_t size_, broken_;
};

struct Seen {
  std::vector<std::vector<std::int64_t>> samples;  // a batch
  std::vector<float> chance;
};

Seen drain(BatchSource& source, std::int64_t epoch, std::int64_t batch, std::int64_t first_batch = 0) {
  Seen seen;
  source.start(epoch, batch, first_batch);
  for (std::int64_t index = first_batch; const Batch* got = source.next(); ++index) {
    EXPECT_EQ(got->index, index);
    EXPECT_EQ(got->epoch, epoch);
    EXPECT_EQ(got->count, static_cast<std::int64_t>(got->targets.size()));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got->inputs.data()) % 64, 0u) << "products would add in another order";
    seen.samples.push_back(got->targets);
    seen.chance.insert(seen.chance.end(), got->inputs.begin(), got->inputs.end());
  }
  EXPECT_EQ(source.next(), nullptr) << "the end stays the end";
  return seen;
}

TEST(Sampler, WorkersShareEveryGlobalBatchExactlyOnce) {
  for (const std::int64_t size : {1, 7, 64, 101})
    for (const std::int64_t batch : {1, 4, 10, 64})
      for (int workers = 1; workers <= 5; ++workers) {
        Sampler sampler(size, batch, true, false, 11);
        sampler.start(3, batch);
        Sampler whole = sampler;
        std::vector<std::int64_t> all;
        for (std::int64_t k = 0; k < sampler.batches(); ++k) {
          std::vector<std::int64_t> joined;
          std::size_t least = 1'000'000, most = 0;
          for (int rank = 0; rank < workers; ++rank) {
            const auto share = sampler.share(k, rank, workers);
            joined.insert(joined.end(), share.begin(), share.end());
            least = std::min(least, share.size());
            most = std::max(most, share.size());
          }
          EXPECT_TRUE(std::ranges::equal(joined, whole.share(k, 0, 1))) << "the global batch does not depend on the workers";
          EXPECT_LE(most - least, 1u) << "the parts are near-equal";
          all.insert(all.end(), joined.begin(), joined.end());
        }
        std::ranges::sort(all);
        ASSERT_EQ(static_cast<std::int64_t>(all.size()), size);
        for (std::int64_t i = 0; i < size; ++i) EXPECT_EQ(all[i], i);
      }
}

TEST(Sampler, PaddedBatchesHaveTheirOwnSamplesInEqualParts) {
  for (const std::int64_t size : {1, 7, 64, 101})
    for (const std::int64_t batch : {1, 4, 10, 64})
      for (int workers = 1; workers <= 5; ++workers) {
        Sampler plain(size, batch, true, false, 11), padded(size, batch, true, false, 11, workers);
        plain.start(3, batch), padded.start(3, batch);
        ASSERT_EQ(padded.batches(), plain.batches());
        for (std::int64_t k = 0; k < plain.batches(); ++k) {
          const auto own = plain.share(k, 0, 1);
          std::vector<std::int64_t> joined;
          for (int rank = 0; rank < workers; ++rank) {
            const auto share = padded.share(k, rank, workers);
            EXPECT_EQ(share.size(), (own.size() + workers - 1) / workers);
            joined.insert(joined.end(), share.begin(), share.end());
          }
          EXPECT_EQ(padded.count(k), std::ssize(joined));
          for (std::size_t i = 0; i < joined.size(); ++i) EXPECT_EQ(joined[i], own[i % own.size()]);
        }
      }
}

TEST(Sampler, EpochsAndSeedsHaveOrdersOfTheirOwnAndRepeat) {
  const auto order = [](std::uint64_t seed, std::int64_t epoch, bool shuffle) {
    Sampler sampler(100, 100, shuffle, true, seed);
    sampler.start(epoch, 100);
    const auto share = sampler.share(0, 0, 1);
    return std::vector<std::int64_t>(share.begin(), share.end());
  };
  EXPECT_EQ(order(1, 0, true), order(1, 0, true));
  EXPECT_NE(order(1, 0, true), order(1, 1, true));
  EXPECT_NE(order(1, 0, true), order(2, 0, true));
  EXPECT_TRUE(std::ranges::is_sorted(order(1, 5, false)));
}

TEST(Sampler, TheBatchMayGrowAndTheRaggedOneIsLeftOutOnRequest) {
  Sampler ragged(10, 4, true, false, 0), whole(10, 4, true, true, 0);
  ragged.start(0, 4);
  whole.start(0, 4);
  EXPECT_EQ(ragged.batches(), 3);
  EXPECT_EQ(whole.batches(), 2);
  EXPECT_EQ(ragged.share(2, 0, 1).size(), 2u);
  whole.start(1, 5);
  EXPECT_EQ(whole.batches(), 2);
  EXPECT_THAT(message_of<ConfigError>([&] { whole.start(2, 11); }), testing::HasSubstr("data.batch=11"));
  EXPECT_THAT(message_of<ConfigError>([&] { whole.start(2, 0); }), testing::HasSubstr("data.batch"));
}

TEST(Loader, ASampleMeetsTheSameChanceOnAnyWorkerAndNewChanceEveryEpoch) {
  const Numbers numbers(37);
  const auto chance_of = [&](int workers, std::int64_t epoch) {
    std::vector<float> chance(37);
    for (int rank = 0; rank < workers; ++rank) {
      const auto loader =
          make_loader(numbers, {.batch = 8, .rank = rank, .workers = workers, .augment = true, .drop_last = false, .seed = 9});
      loader->start(epoch, 8);
      while (const Batch* batch = loader->next())
        for (std::int64_t i = 0; i < batch->count; ++i) chance[batch->targets[i]] = batch->inputs[i];
    }
    return chance;
  };
  const auto alone = chance_of(1, 0);
  EXPECT_EQ(std::set<float>(alone.begin(), alone.end()).size(), 37u);
  for (int workers = 2; workers <= 5; ++workers) EXPECT_EQ(chance_of(workers, 0), alone);
  EXPECT_NE(chance_of(1, 1), alone);
}

TEST(Loader, ResumesInsideAnEpoch) {
  const Numbers numbers(50);
  for (const int threads : {0, 2}) {
    const auto loader = make_prefetching_loader(numbers, {.batch = 6, .augment = true, .drop_last = false, .seed = 1}, threads, 3);
    const Seen whole = drain(*loader, 2, 6);
    const Seen rest = drain(*loader, 2, 6, 5);
    EXPECT_EQ(rest.samples, decltype(rest.samples)(whole.samples.begin() + 5, whole.samples.end()));
    EXPECT_TRUE(drain(*loader, 2, 6, 9).samples.empty());
  }
}

class PrefetchDepth : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(PrefetchDepth, HasTheOrderAndTheBitsOfTheDirectLoader) {
  const auto [threads, ahead] = GetParam();
  const Numbers numbers(203);
  const LoaderOptions options{.batch = 8, .rank = 1, .workers = 3, .augment = true, .drop_last = false, .seed = 4};
  const auto direct = make_loader(numbers, options);
  const auto ahead_of_time = make_prefetching_loader(numbers, options, threads, ahead);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    const Seen expected = drain(*direct, epoch, 8 + epoch), got = drain(*ahead_of_time, epoch, 8 + epoch);
    EXPECT_EQ(got.samples, expected.samples);
    EXPECT_EQ(got.chance, expected.chance);
    EXPECT_EQ(ahead_of_time->batches(), direct->batches());
  }
}

INSTANTIATE_TEST_SUITE_P(ThreadsAndDepths, PrefetchDepth,
                         testing::Values(std::pair{0, 1}, std::pair{1, 1}, std::pair{1, 4}, std::pair{3, 1}, std::pair{4, 9}));

TEST(Prefetch, ABatchStaysGoodUntilTheNextOne) {
  const Numbers numbers(400);
  const auto loader = make_prefetching_loader(numbers, {.batch = 4}, 3, 2);
  loader->start(0, 4);
  while (const Batch* batch = loader->next()) {
    const Batch copy = *batch;
    std::this_thread::yield();
    EXPECT_EQ(batch->targets, copy.targets);
    EXPECT_EQ(batch->index, copy.index);
  }
}

TEST(Prefetch, StopsAndStartsAgainInTheMiddleOfAnEpoch) {
  const Numbers numbers(1000);
  for (int trial = 0; trial < 50; ++trial) {
    const auto loader = make_prefetching_loader(numbers, {.batch = 10}, 3, 4);
    if (trial % 5 == 0) continue;  // never started
    loader->start(0, 10);
    for (int i = 0; i < trial % 7; ++i) loader->next();
    if (trial % 2) loader->start(1, 20);
    if (trial % 3 == 0) {
      EXPECT_EQ(loader->next()->index, trial % 2 ? 0 : trial % 7);
    }
  }
}

TEST(Prefetch, AnErrorOfAThreadComesOutOfNextInItsTurn) {
  const Numbers numbers(100, 42);
  for (const int threads : {0, 1, 3}) {
    const auto loader = make_prefetching_loader(numbers, {.batch = 10, .shuffle = false}, threads, 4);
    loader->start(0, 10);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(loader->next()->index, i);
    EXPECT_EQ(message_of<DataError>([&] { loader->next(); }), "sample: is broken");
    loader->start(1, 10);  // good for another epoch
    EXPECT_EQ(loader->next()->index, 0);
    EXPECT_THROW(loader->start(2, 0), ConfigError);
    loader->start(3, 10);
    EXPECT_EQ(loader->next()->index, 0);
  }
}

TEST(Loader, BeforeTheStartThereIsNothing) {
  const Numbers numbers(10);
  for (const int threads : {0, 1}) EXPECT_EQ(make_prefetching_loader(numbers, {.batch = 2}, threads, 2)->next(), nullptr);
  EXPECT_THROW(make_loader(numbers, {.batch = 0}), ConfigError);
}

TEST(Loader, PlansAreWhatReadWouldDo) {
  DataConfig config = config_of("random");
  config.train_samples = 40;
  config.cutout = 5;
  const auto set = make_dataset(config, Split::train, 3);
  const LoaderOptions options{.batch = 16, .rank = 1, .workers = 2, .augment = true, .seed = 8};
  Sampler sampler(set->size(), 16, true, true, options.seed);
  sampler.start(2, 16);
  std::vector<AugmentPlan> plans;
  draw_plans(*set, options, sampler, 2, 1, plans);
  const auto loader = make_loader(*set, options);
  loader->start(2, 16, 1);
  const Batch* batch = loader->next();
  ASSERT_EQ(plans.size(), static_cast<std::size_t>(batch->count));

  const auto pixels = set->pixels().value();
  const Info& info = set->info();
  const int side = 32;
  for (std::size_t n = 0, i = 0; n < plans.size(); ++n) {
    EXPECT_EQ(pixels.labels[plans[n].sample], batch->targets[n]);
    for (int c = 0; c < 3; ++c)
      for (int y = 0; y < side; ++y)
        for (int x = 0; x < side; ++x, ++i)
          ASSERT_EQ(batch->inputs[i], augmented(pixels.bytes.data() + (plans[n].sample * 3 + c) * side * side, plans[n], x, y, side, side,
                                                info.mean[c] * 255.0f, 1.0f / (255.0f * info.deviation[c])));
  }
}

}  // namespace
}  // namespace paceline::data
