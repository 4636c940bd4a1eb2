// fp16, bf16, powersgd: workers that average in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "paceline/base/half.h"
#include "paceline/compress/low_rank.h"
#include "tests/compress/support.h"

namespace paceline::compress {
namespace {

using testing::Each;

template <class Half>
void average_halves(std::vector<Round>& rounds) {
  for (std::int64_t i = 0; i < rounds[0].count; ++i) {
    float sum = 0;
    for (const Round& round : rounds) sum += static_cast<Half*>(round.data)[i].value();
    for (const Round& round : rounds) static_cast<Half*>(round.data)[i] = Half::from(sum / static_cast<float>(rounds.size()));
  }
}

/// What an allreduce does.
void average(std::vector<Round> rounds) {
  for (const Round& round : rounds) ASSERT_EQ(round.count, rounds[0].count);
  if (rounds[0].type == Round::Type::f16) return average_halves<Float16>(rounds);
  if (rounds[0].type == Round::Type::bf16) return average_halves<BFloat16>(rounds);
  for (std::int64_t i = 0; i < rounds[0].count; ++i) {
    double sum = 0;
    for (const Round& round : rounds) sum += static_cast<float*>(round.data)[i];
    for (const Round& round : rounds) static_cast<float*>(round.data)[i] = static_cast<float>(sum / static_cast<double>(rounds.size()));
  }
}

/// Workers with a Linear each. `values` become the residuals; the mean is the same for all.
struct Team {
  std::vector<std::unique_ptr<Linear>> workers;
  std::int64_t numbers = 0;  // sent by a worker in the last step

  Team(const std::string& key, const RangeLayout& layout, int size, const CompressConfig& config = {}) {
    for (int rank = 0; rank < size; ++rank) workers.push_back(linear(key, layout, config));
  }

  std::vector<float> step(std::vector<std::vector<float>>& values) {
    numbers = 0;
    for (int index = 0; index < workers[0]->rounds(); ++index) {
      std::vector<Round> rounds;
      for (std::size_t rank = 0; rank < workers.size(); ++rank) rounds.push_back(workers[rank]->round(index, values[rank].data()));
      numbers += rounds[0].count;
      average(rounds);
    }
    std::vector<float> mean(values[0].size(), 77), other(mean);
    for (std::size_t rank = 0; rank < workers.size(); ++rank) {
      workers[rank]->finish(values[rank].data(), other.data());
      if (rank == 0) mean = other;
      EXPECT_EQ(other, mean) << "workers disagree";
    }
    return mean;
  }
};

class LinearTest : public testing::TestWithParam<std::string> {
 protected:
  const RangeLayout layout = odd_layout();
};

// Over all workers and many steps nothing is lost: means that were agreed on plus the mean residual are the sum of the mean gradients.
TEST_P(LinearTest, ErrorFeedbackLosesNothing) {
  for (const int size : {1, 3}) {
    Team team(GetParam(), layout, size);
    std::vector<std::vector<float>> residuals(size, std::vector<float>(layout.length));
    std::vector<double> gradients(layout.length), agreed(layout.length);
    for (int step = 0; step < 30; ++step) {
      for (int rank = 0; rank < size; ++rank) {
        const std::vector<float> g = gradient(layout, static_cast<std::uint64_t>(100 * step + rank));
        for (std::size_t i = 0; i < g.size(); ++i) residuals[rank][i] += g[i], gradients[i] += g[i] / static_cast<double>(size);
      }
      const std::vector<float> mean = team.step(residuals);
      for (std::size_t i = 0; i < mean.size(); ++i) agreed[i] += mean[i];
    }
    const double rounding = GetParam() == "powersgd" ? 2e-5 : 30 * 0.05 * (GetParam() == "fp16" ? 0x1p-11 : 0x1p-8);
    for (std::size_t i = 0; i < agreed.size(); ++i) {
      double left = 0;
      for (const auto& residual : residuals) left += residual[i] / static_cast<double>(size);
      ASSERT_NEAR(agreed[i] + left, gradients[i], rounding) << "value " << i;  // averaging in halves rounds once more
    }
  }
}

TEST_P(LinearTest, GapsHoldZerosAndNothingElseChanges) {
  Team team(GetParam(), layout, 2);
  std::vector<std::vector<float>> values = {gradient(layout, 1), gradient(layout, 2)};
  const std::vector<float> mean = team.step(values);
  for (const std::int64_t gap : {0, 2, 5, 6, 7, 8}) EXPECT_EQ(mean[gap], 0) << gap;
  EXPECT_EQ(mean.back(), 0);
  EXPECT_NE(mean[layout.parts[1].offset], 0);
}

TEST_P(LinearTest, NothingAndOneValue) {
  for (const std::int64_t count : {0, 1}) {
    Team team(GetParam(), one_part(count), 2);
    std::vector<std::vector<float>> values(2, std::vector<float>(count, 0.5f));
    EXPECT_THAT(team.step(values), Each(0.5f));
  }
  EXPECT_EQ(linear(GetParam(), RangeLayout{})->rounds(), GetParam() == "powersgd" ? 2 : 1);
}

TEST_P(LinearTest, NanAndInfinityAreSeen) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    Team team(GetParam(), layout, 1);
    std::vector<std::vector<float>> values = {gradient(layout, 1)};
    values[0][layout.parts[1].offset + 100] = bad;
    const auto workers_mean = [&] {
      team.workers[0]->round(0, values[0].data());
      if (team.workers[0]->rounds() == 2) team.workers[0]->round(1, values[0].data());
      std::vector<float> mean(values[0].size());
      team.workers[0]->finish(values[0].data(), mean.data());
      return mean;
    }();
    EXPECT_TRUE(std::any_of(workers_mean.begin(), workers_mean.end(), [](float value) { return !std::isfinite(value); })) << bad;
  }
}

INSTANTIATE_TEST_SUITE_P(All, LinearTest, testing::ValuesIn(keys(false)), [](const auto& test) { return test.param; });

TEST(Halves, RoundToTheNearest) {
  const RangeLayout layout = one_part(1000);
  const auto fp16 = [](float value) { return Float16::from(value).value(); };
  const auto bf16 = [](float value) { return BFloat16::from(value).value(); };
  struct Half {
    float relative;
    std::function<float(float)> round;
  };
  for (const auto& [key, half] : std::map<std::string, Half>{{"fp16", {0x1p-11f, fp16}}, {"bf16", {0x1p-8f, bf16}}}) {
    Team team(key, layout, 1);
    std::vector<std::vector<float>> values = {gradient(layout, 1, 1)};
    const std::vector<float> before = values[0], mean = team.step(values);
    EXPECT_EQ(team.numbers, 1000);
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_NEAR(mean[i], before[i], half.relative * std::abs(before[i]) + 3e-8f);
      EXPECT_EQ(mean[i], half.round(mean[i])) << "what travels is a number of this type";
      EXPECT_EQ(before[i], mean[i] + values[0][i]) << "the residual of a rounding is exact";
    }
  }
}

// All halves, and all floats that lie next to them or between two.
TEST(Halves, ConvertAsTheStandardSays) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const Float16 half{static_cast<std::uint16_t>(bits)}, next{static_cast<std::uint16_t>(bits + 1)};
    const int exponent = static_cast<int>(bits >> 10);
    const double value = exponent == 0 ? std::ldexp(bits, -24) : std::ldexp(1024 + (bits & 1023), exponent - 25);
    ASSERT_EQ(half.value(), value);
    const float middle = bits == 0x7bff ? 65520.0f : (half.value() + next.value()) / 2;
    ASSERT_EQ(Float16::from(half.value()).bits, bits);
    ASSERT_EQ(Float16::from(middle).bits, bits % 2 == 0 ? bits : bits + 1) << "half way: the even one";
    ASSERT_EQ(Float16::from(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(Float16::from(std::nextafter(middle, 1e9f)).bits, bits + 1);
    ASSERT_EQ(Float16::from(-half.value()).bits, bits | 0x8000);
  }
  EXPECT_EQ(Float16::from(INFINITY).bits, 0x7c00);
  EXPECT_EQ(Float16::from(1e30f).bits, 0x7c00);
  EXPECT_TRUE(std::isnan(Float16::from(std::nanf("")).value()));
}

/// rows × columns of the given rank.
std::vector<float> matrix_of_rank(std::int64_t rows, std::int64_t columns, int rank, std::uint64_t seed) {
  RandomStream stream(seed, Purpose::test);
  std::vector<float> matrix(rows * columns);
  for (int r = 0; r < rank; ++r) {
    std::vector<float> a(rows), b(columns);
    for (float& x : a) x = stream.normal();
    for (float& x : b) x = stream.normal();
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) matrix[i * columns + j] += a[i] * b[j];
  }
  return matrix;
}

RangeLayout one_matrix(std::int64_t rows, std::int64_t columns) {
  return {.parts = {{0, rows * columns, rows, columns}}, .length = rows * columns};
}

double norm(const std::vector<float>& values) { return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0)); }

CompressConfig with_rank(std::int64_t rank) {
  CompressConfig config;
  config.rank = rank;
  return config;
}

TEST(PowerSgd, MatricesOfItsRankAreExact) {
  for (const int rank : {1, 2, 3, 4, 5, 6, 7, 8, 9, 19}) {
    const std::vector<float> matrix = matrix_of_rank(67, 131, rank, 1);
    Team team("powersgd", one_matrix(67, 131), 1, with_rank(rank));
    std::vector<std::vector<float>> values = {matrix};
    const std::vector<float> mean = team.step(values);
    EXPECT_LT(norm(values[0]), 1e-4 * norm(matrix)) << "rank " << rank;
    for (std::size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(mean[i], matrix[i], 1e-3);
  }
}

TEST(PowerSgd, TheMeanOfWorkersIsWhatIsFactored) {
  std::vector<std::vector<float>> values = {matrix_of_rank(40, 50, 1, 1), matrix_of_rank(40, 50, 1, 2)};
  std::vector<float> expected(2000);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = (values[0][i] + values[1][i]) / 2;
  Team team("powersgd", one_matrix(40, 50), 2);
  const std::vector<float> mean = team.step(values);
  for (std::size_t i = 0; i < mean.size(); ++i) ASSERT_NEAR(mean[i], expected[i], 1e-4);
}

TEST(PowerSgd, KeepingQFindsTheLargestDirections) {
  std::vector<float> matrix = matrix_of_rank(60, 80, 2, 1);
  RandomStream stream(3, Purpose::test);
  for (float& value : matrix) value += 0.1f * stream.normal();
  Team team("powersgd", one_matrix(60, 80), 1);
  double left = 0;
  for (int step = 0; step < 10; ++step) {
    std::vector<std::vector<float>> values = {matrix};
    team.step(values);
    left = norm(values[0]);
  }
  EXPECT_LT(left, 0.1 * std::sqrt(60 * 80)) << "no better than the noise, which no matrix of rank 2 has";
}

TEST(PowerSgd, SendsFactorsOfMatricesAndVectorsAsTheyAre) {
  RangeLayout layout = odd_layout();  // 37×53, 16×129, 64×27 and vectors of 1, 64, 513
  for (const std::int64_t rank : {1, 2, 4}) {
    Team team("powersgd", layout, 2, with_rank(rank));
    std::vector<std::vector<float>> values = {gradient(layout, 1), gradient(layout, 2)};
    const std::vector<float> a = values[0], b = values[1], mean = team.step(values);
    EXPECT_EQ(team.numbers, 1 + 64 + 513 + rank * (37 + 53 + 16 + 129 + 64 + 27));
    const std::int64_t begin = layout.parts[4].offset;
    for (std::int64_t i = begin; i < begin + 513; ++i) {
      EXPECT_FLOAT_EQ(mean[i], (a[i] + b[i]) / 2);
      EXPECT_EQ(values[0][i], 0);
    }
  }
  Team dense("powersgd", one_matrix(4, 4), 1, with_rank(2));  // factors would be as large
  std::vector<std::vector<float>> values = {std::vector<float>(16, 1)};
  EXPECT_THAT(dense.step(values), Each(1.0f));
  EXPECT_EQ(dense.numbers, 16);
}

TEST(PowerSgd, GoesOnFromItsState) {
  const RangeLayout layout = odd_layout();
  const auto steps = [&](Team& team, int from, int to) {
    std::vector<float> mean;
    for (int step = from; step < to; ++step) {
      std::vector<std::vector<float>> values = {gradient(layout, static_cast<std::uint64_t>(step))};
      mean = team.step(values);
    }
    return mean;
  };
  Team whole("powersgd", layout, 1), first("powersgd", layout, 1), second("powersgd", layout, 1);
  const std::vector<float> expected = steps(whole, 0, 6);
  steps(first, 0, 3);
  const std::vector<float> saved = first.workers[0]->state();
  ASSERT_EQ(saved.size(), second.workers[0]->state().size());
  ASSERT_GT(saved.size(), 0u);
  second.workers[0]->set_state(saved);
  EXPECT_EQ(steps(second, 3, 6), expected);
}

TEST(PowerSgd, RecoversFromZerosAndDependentColumns) {
  const RangeLayout layout = one_matrix(30, 40);
  Team team("powersgd", layout, 1, with_rank(4));
  std::vector<std::vector<float>> values = {std::vector<float>(1200)};
  EXPECT_THAT(team.step(values), Each(0.0f));
  values = {matrix_of_rank(30, 40, 1, 1)};
  team.step(values);  // rank 1: three of the columns have nothing of their own
  const std::vector<float> matrix = matrix_of_rank(30, 40, 4, 2);
  values = {matrix};
  team.step(values);
  EXPECT_LT(norm(values[0]), 1e-3 * norm(matrix));
}

TEST(LowRank, OrthonormalColumns) {
  constexpr std::int64_t kRows = 50, kRank = 6;
  std::vector<float> columns(kRows * kRank);
  fill_random(columns.data(), kRows * kRank, 1);
  std::copy_n(columns.begin(), kRows, columns.begin() + 3 * kRows);  // dependent
  std::fill_n(columns.begin() + 5 * kRows, kRows, 0.0f);
  orthonormalise(columns.data(), kRows, kRank, 2);
  for (int a = 0; a < kRank; ++a)
    for (int b = 0; b < kRank; ++b)
      EXPECT_NEAR(std::inner_product(columns.begin() + a * kRows, columns.begin() + (a + 1) * kRows, columns.begin() + b * kRows, 0.0),
                  a == b, 1e-5);
}

// Every rank has a kernel of its own, with tails of rows and columns.
TEST(LowRank, ProductsAreThoseOfTheFormula) {
  for (std::int64_t rank = 1; rank <= 11; ++rank) {
    for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {2, 7}, {5, 4}, {9, 13}, {16, 33}}) {
      const Shape shape{rows, columns, rank};
      std::vector<float> m(rows * columns), q(rank * columns), p(rank * rows), p_found(p), q_found(q), mean(m), rest(m);
      fill_random(m.data(), rows * columns, 1);
      fill_random(q.data(), rank * columns, 2);
      fill_random(p.data(), rank * rows, 3);
      rest = m;
      multiply(shape, m.data(), q.data(), p_found.data());
      multiply_transposed(shape, m.data(), p.data(), q_found.data());
      reconstruct(shape, p.data(), q.data(), q_found.data(), mean.data(), rest.data());
      for (std::int64_t r = 0; r < rank; ++r) {
        for (std::int64_t i = 0; i < rows; ++i) {
          double sum = 0;
          for (std::int64_t j = 0; j < columns; ++j) sum += static_cast<double>(m[i * columns + j]) * q[r * columns + j];
          ASSERT_NEAR(p_found[r * rows + i], sum, 1e-5);
        }
        for (std::int64_t j = 0; j < columns; ++j) {
          double sum = 0;
          for (std::int64_t i = 0; i < rows; ++i) sum += static_cast<double>(m[i * columns + j]) * p[r * rows + i];
          ASSERT_NEAR(q_found[r * columns + j], sum, 1e-5);
        }
      }
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
          double agreed = 0, said = 0;
          for (std::int64_t r = 0; r < rank; ++r) {
            agreed += static_cast<double>(p[r * rows + i]) * q[r * columns + j];
            said += static_cast<double>(p[r * rows + i]) * q_found[r * columns + j];
          }
          ASSERT_NEAR(mean[i * columns + j], agreed, 1e-4);
          ASSERT_NEAR(rest[i * columns + j], m[i * columns + j] - said, 1e-4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace paceline::compress
