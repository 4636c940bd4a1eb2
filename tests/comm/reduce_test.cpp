#include "paceline/comm/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "paceline/comm/half.h"

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

}  // namespace
}  // namespace paceline::comm
