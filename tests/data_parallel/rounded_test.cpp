// comm.gradient_dtype=bf16: gradients travel in bf16 and are added in fp32, against sums in double precision.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <thread>

#include "paceline/comm/engine.h"
#include "paceline/data_parallel/exchange.h"

namespace paceline::data_parallel {
namespace {

constexpr std::int64_t kRows = 37, kColumns = 9;  // 333 values: parts of different lengths on 2 and 4 workers

/// What the exchange left in every worker's gradients, and what it counted.
struct Exchanged {
  std::vector<at::Tensor> gradients;  // by worker
  std::vector<Bucket> buckets;
  std::int64_t sent = 0, plain = 0;
};

Exchanged exchange(int workers, at::ScalarType storage, bool scatters, const std::function<at::Tensor(int rank, std::int64_t n)>& values,
                   const std::string& algorithm = {}) {
  Exchanged result{.gradients = std::vector<at::Tensor>(static_cast<std::size_t>(workers)), .buckets = {}};
  auto group = comm::local_group(workers);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < workers; ++rank)
    threads.emplace_back([&, rank] {
      tensor::Arena arena({{.name = "a", .shape = {kRows, kColumns}}, {.name = "b", .shape = {kRows}}}, {.tensor = storage});
      arena.gradients().copy_(values(rank, arena.length()));
      const auto made =
          make_exchange({.arena = arena, .comm = *group[static_cast<std::size_t>(rank)], .algorithm = algorithm, .bf16 = true});
      const std::vector<Bucket> buckets = cut_buckets(arena, 1);
      made->prepare(buckets);
      for (const Bucket& bucket : buckets) scatters ? made->scatter(bucket) : made->average(bucket);
      result.gradients[static_cast<std::size_t>(rank)] = arena.gradients().clone();
      if (rank == 0) result.buckets = buckets, result.sent = made->bytes_sent(), result.plain = made->bytes_plain();
    });
  for (std::thread& thread : threads) thread.join();
  return result;
}

at::Tensor wave(int rank, std::int64_t n) { return (at::arange(n, at::kDouble) * 0.7 + rank * 1.3).sin() * std::pow(10.0, rank - 1); }

at::Tensor mean_in_double(int workers, std::int64_t n) {
  at::Tensor sum = at::zeros({n}, at::kDouble);
  for (int rank = 0; rank < workers; ++rank) sum += wave(rank, n).to(at::kFloat).to(at::kBFloat16).to(at::kDouble);
  return sum / workers;
}

constexpr double kBf16Bits = 8,
                 kFp32Bits = 22;  // half a unit in the last place of 1 is 2⁻⁸ in bf16; of fp32's 2⁻²⁴, a few additions leave this

/// Off by a rounding to so many bits, and by what fp32 loses where summands of up to 100 cancel.
void expect_near(const at::Tensor& actual, const at::Tensor& expected, double bits) {
  const at::Tensor most = expected.abs() * std::exp2(-bits) + 1e-5;
  EXPECT_TRUE(((actual.to(at::kDouble) - expected).abs() <= most).all().item<bool>());
}

TEST(Bf16Gradients, AreAveragedInFp32AndRoundedOnce) {
  for (const int workers : {2, 3, 4})
    for (const auto storage : {at::kFloat, at::kBFloat16}) {
      const Exchanged found = exchange(workers, storage, /*scatters=*/false, wave);
      expect_near(found.gradients[0], mean_in_double(workers, found.gradients[0].numel()), kBf16Bits);
      for (const at::Tensor& other : found.gradients) EXPECT_TRUE(at::equal(other, found.gradients[0])) << "all workers have the same bits";
      EXPECT_TRUE(at::equal(exchange(workers, storage, false, wave).gradients[0], found.gradients[0])) << "and again";
    }
}

TEST(Bf16Gradients, TravelByAnyAlgorithm) {
  const Exchanged usual = exchange(4, at::kFloat, /*scatters=*/false, wave);
  for (const auto& row : schedule::algorithms()) {
    if (row.make.by_host) continue;
    const Exchanged chosen = exchange(4, at::kFloat, /*scatters=*/false, wave, std::string(row.key));
    EXPECT_TRUE(at::equal(chosen.gradients[3], usual.gradients[3])) << row.key;
  }
}

TEST(Bf16Gradients, OfAnOwnedPartAreNotRoundedAgain) {
  for (const int workers : {2, 3, 4}) {
    const Exchanged found = exchange(workers, at::kFloat, /*scatters=*/true, wave);
    const at::Tensor expected = mean_in_double(workers, found.gradients[0].numel());
    for (const Bucket& bucket : found.buckets)
      for (int rank = 0; rank < workers; ++rank) {
        const schedule::Range part = schedule::part(bucket.count(), workers, rank);
        const std::int64_t begin = bucket.begin + part.begin;
        expect_near(found.gradients[static_cast<std::size_t>(rank)].narrow(0, begin, part.size()), expected.narrow(0, begin, part.size()),
                    21);
      }
  }
}

// 1 + 2⁻⁹ + 2⁻⁹ + 2⁻⁹ is 1 where every addition is rounded to bf16.
TEST(Bf16Gradients, DoNotLoseSmallSummands) {
  const auto values = [](int rank, std::int64_t n) { return at::full({n}, rank == 0 ? 1.0 : std::exp2(-9)); };
  const Exchanged scattered = exchange(4, at::kFloat, /*scatters=*/true, values), averaged = exchange(4, at::kFloat, false, values);
  EXPECT_EQ(scattered.gradients[0][0].item<float>(), static_cast<float>((1 + 3 * std::exp2(-9)) / 4));
  EXPECT_EQ(averaged.gradients[0][0].item<float>(), static_cast<float>(0.25 + std::exp2(-9)));
}

TEST(Bf16Gradients, TravelInHalfTheBytes) {
  for (const bool scatters : {false, true}) {
    const Exchanged found = exchange(4, at::kFloat, scatters, wave);
    EXPECT_GT(found.sent, 0);
    EXPECT_EQ(found.plain, 2 * found.sent);
  }
}

}  // namespace
}  // namespace paceline::data_parallel
