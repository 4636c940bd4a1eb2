// Finite values of every type and layout that a run has.
#include "paceline/step/finite_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace paceline::step {
namespace {

TEST(FiniteTensors, AreFoundInEveryTypeAndLayout) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble})
    for (const double value :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
      const at::Tensor values = at::ones({5, 4}, type);
      EXPECT_TRUE(all_finite(values)) << type;
      values[3][2] = value;
      EXPECT_FALSE(all_finite(values)) << type;
      EXPECT_FALSE(all_finite(values.t())) << type;
      EXPECT_TRUE(all_finite(values.select(1, 1))) << type;
      EXPECT_FALSE(all_finite(values.select(1, 2))) << type;
      EXPECT_TRUE(all_finite(values.narrow(0, 0, 0))) << "there are none";
    }
}

}  // namespace
}  // namespace paceline::step
