#include "paceline/comm/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "paceline/base/half.h"

namespace paceline::comm {
namespace {

TEST(Half, RoundsToNearestEvenAndKeepsWhatIsSpecial) {
  EXPECT_EQ(BFloat16::from(1.0f).bits, 0x3f80);
  EXPECT_EQ(BFloat16::from(1.00390625f).bits, 0x3f80);  // half way between two: the even one
  EXPECT_EQ(BFloat16::from(1.01171875f).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(BFloat16::from(NAN).value()));
  EXPECT_TRUE(std::isinf(BFloat16::from(INFINITY).value()));
  EXPECT_EQ(Float16::from(65504.0f).value(), 65504.0f);
  EXPECT_TRUE(std::isinf(Float16::from(70000.0f).value()));
  EXPECT_EQ(Float16::from(0.1f).value(), 0.0999755859375f);
  EXPECT_EQ(Float16::from(5.9604645e-8f).value(), 5.9604645e-8f);  // the smallest
}

TEST(Combine, WorksInEveryType) {
  std::vector<std::int8_t> small{100, -3}, other{100, 5};
  combine(DType::i8, ReduceOp::sum, small.data(), other.data(), 2);
  EXPECT_EQ(small, (std::vector<std::int8_t>{-56, 2}));  // wraps around
  std::vector<std::int64_t> big{1ll << 40, 7}, more{1, -9};
  combine(DType::i64, ReduceOp::min, big.data(), more.data(), 2);
  EXPECT_EQ(big, (std::vector<std::int64_t>{1, -9}));
  std::vector<std::uint8_t> bytes{1, 200}, others{250, 100};
  combine(DType::u8, ReduceOp::max, bytes.data(), others.data(), 2);
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{250, 200}));
}

TEST(CombineAll, GoesInTheOrderOfItsArgumentsAndRoundsAfterEach) {
  // 2048 + 1 is 2048 in fp16, twice: only the order in which it is added decides.
  const Float16 large = Float16::from(2048), one = Float16::from(1);
  std::vector<Float16> a(3000, large), b(3000, one), c(3000, one), out(3000);
  const void* ins[] = {a.data(), b.data(), c.data()};
  void* outs[] = {out.data()};
  combine_all(DType::f16, ReduceOp::sum, ins, outs, 3000, 1);
  EXPECT_EQ(out[2999].value(), 2048.0f);
  const void* turned[] = {b.data(), c.data(), a.data()};
  combine_all(DType::f16, ReduceOp::sum, turned, outs, 3000, 1);
  EXPECT_EQ(out[2999].value(), 2050.0f);
}

TEST(CombineAll, WritesEveryOutputAlsoInPlaceAndDivides) {
  std::vector<float> a(1500, 1), b(1500, 2), c(1500, 6);
  const void* ins[] = {a.data(), b.data(), c.data()};
  void* outs[] = {a.data(), b.data(), c.data()};
  combine_all(DType::f32, ReduceOp::mean, ins, outs, 1500, 3);
  for (const auto* values : {&a, &b, &c}) EXPECT_EQ(*values, std::vector<float>(1500, 3));
}

TEST(CombineAll, MeansOfTwoGoIntoOneOutputOrThree) {
  // Lines of floats, what is left over of them, and halves take three different loops.
  for (const std::int64_t count : {1, 7, 64, 1500})
    for (const std::size_t outputs : {1, 3}) {
      const std::vector<float> a(static_cast<std::size_t>(count), 1), b(static_cast<std::size_t>(count), 4);
      std::vector<std::vector<float>> out(outputs, std::vector<float>(a.size()));
      std::vector<void*> outs;
      for (auto& values : out) outs.push_back(values.data());
      const void* ins[] = {a.data(), b.data()};
      combine_all(DType::f32, ReduceOp::mean, ins, outs, count, 2);
      for (const auto& values : out) EXPECT_EQ(values, std::vector<float>(a.size(), 2.5f)) << count << " into " << outputs;

      const std::vector<Float16> low(a.size(), Float16::from(1)), high(a.size(), Float16::from(4));
      std::vector<Float16> half(a.size());
      const void* halves[] = {low.data(), high.data()};
      void* into[] = {half.data()};
      combine_all(DType::f16, ReduceOp::mean, halves, into, count, 2);
      EXPECT_EQ(half.back().value(), 2.5f);
    }
}

/// Whole cache lines and what is left over, in place at addresses that no vector is aligned to, give the bits of one by one.
template <class T>
void expect_like_one_by_one(ReduceOp op, int ranks) {
  constexpr std::int64_t kCount = 150;
  const int divisor = op == ReduceOp::mean ? ranks : 1;
  std::vector<std::vector<T>> values;
  for (int rank = 0; rank < ranks; ++rank) {
    auto& own = values.emplace_back(kCount + 1);
    for (std::size_t i = 0; i < own.size(); ++i)
      own[i] = static_cast<T>((static_cast<int>(i) * 37 + rank * 101) % 251 - 60) / static_cast<T>(3);
  }
  std::vector<void*> outs;
  for (auto& own : values) outs.push_back(own.data() + 1);
  const std::vector<const void*> ins(outs.begin(), outs.end());
  std::vector<T> expected(values[0].begin() + 1, values[0].end());
  for (std::size_t k = 1; k < ins.size(); ++k) combine(dtype_of<T>(), op, expected.data(), ins[k], kCount);
  if (divisor != 1) divide(dtype_of<T>(), expected.data(), kCount, divisor);
  combine_all(dtype_of<T>(), op, ins, outs, kCount, divisor);
  for (const auto& own : values)
    EXPECT_EQ(std::vector<T>(own.begin() + 1, own.end()), expected) << name_of(dtype_of<T>()) << " " << name_of(op) << ", ranks " << ranks;
}

TEST(CombineAll, HasTheBitsOfOneByOne) {
  for (const int ranks : {2, 5})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max}) {
      expect_like_one_by_one<float>(op, ranks);
      expect_like_one_by_one<double>(op, ranks);
      expect_like_one_by_one<std::int8_t>(op, ranks);
      expect_like_one_by_one<std::uint8_t>(op, ranks);
      expect_like_one_by_one<std::int32_t>(op, ranks);
      expect_like_one_by_one<std::int64_t>(op, ranks);
    }
}

/// All triples of special values: three buffers, so long that whole cache lines and what is left over are both there.
template <class T, class Make>
void expect_extremes_without_order(DType dtype, Make make) {
  const float nan = std::bit_cast<float>(0x7fe00000u), minus_nan = std::bit_cast<float>(0xffc00000u);
  const std::vector<float> special{0.0f, -0.0f, 1, -1, INFINITY, -INFINITY, 5.9604645e-8f, -5.9604645e-8f, NAN, nan, minus_nan};
  std::array<std::vector<T>, 3> values;
  std::vector<float> least, greatest;  // NaN where one is
  for (const float a : special)
    for (const float b : special)
      for (const float c : special) {
        values[0].push_back(make(a)), values[1].push_back(make(b)), values[2].push_back(make(c));
        const bool any = std::isnan(a) || std::isnan(b) || std::isnan(c);
        least.push_back(any ? NAN : std::min({a, b, c})), greatest.push_back(any ? NAN : std::max({a, b, c}));
      }
  const auto count = static_cast<std::int64_t>(least.size());
  const auto bytes_of = [](const std::vector<T>& numbers) {
    return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
  };
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    std::array<int, 3> order{0, 1, 2};
    std::set<std::string> results;
    do {
      const auto of = [&](int place) -> const std::vector<T>& { return values[static_cast<std::size_t>(order[place])]; };
      std::vector<T> left = of(0), right = of(1), at_once(of(0).size());
      combine(dtype, op, left.data(), of(1).data(), count), combine(dtype, op, left.data(), of(2).data(), count);
      combine(dtype, op, right.data(), of(2).data(), count), combine(dtype, op, right.data(), of(0).data(), count);
      const void* ins[] = {of(0).data(), of(1).data(), of(2).data()};
      void* outs[] = {at_once.data()};
      combine_all(dtype, op, ins, outs, count, 1);
      for (const auto* result : {&left, &right, &at_once}) results.insert(bytes_of(*result));
      for (std::size_t i = 0; i < at_once.size(); ++i) {
        const double wanted = (op == ReduceOp::min ? least : greatest)[i];
        double found;
        if constexpr (std::is_floating_point_v<T>) found = at_once[i];
        else found = at_once[i].value();
        ASSERT_TRUE(std::isnan(wanted) ? std::isnan(found) : found == wanted) << i << ": " << found << ", not " << wanted;
      }
    } while (std::ranges::next_permutation(order).found);
    EXPECT_EQ(results.size(), 1u) << name_of(dtype) << " " << name_of(op);
  }
}

TEST(CombineAll, MinAndMaxKeepNansAndDoNotDependOnTheOrder) {
  expect_extremes_without_order<float>(DType::f32, [](float value) { return value; });
  expect_extremes_without_order<double>(DType::f64, [](float value) { return static_cast<double>(value); });
  expect_extremes_without_order<Float16>(DType::f16, Float16::from);
  expect_extremes_without_order<BFloat16>(DType::bf16, BFloat16::from);
}

}  // namespace
}  // namespace paceline::comm
