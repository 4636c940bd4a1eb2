// Pieces delivered into an arena on the CPU: copied or added, whatever their layouts and types.
#include "paceline/tensor/batched_copy.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace paceline::tensor {
namespace {

TEST(BatchedCopy, AreCopiedOrAdded) {
  torch::manual_seed(1);
  const at::Tensor flat = at::full({64}, 7.f), untouched = flat.clone();
  const at::Tensor matrix = at::randn({4, 3}), half = at::randn({5}).to(at::kBFloat16);
  const std::vector<BatchedCopy> copies = {
      {flat.narrow(0, 0, 12).view({3, 4}), matrix.t()},  // another layout
      {flat.narrow(0, 16, 5), half},                     // another type
  };
  copy_together(copies, false);
  EXPECT_TRUE(at::equal(copies[0].place, matrix.t()));
  EXPECT_TRUE(at::equal(copies[1].place, half.to(at::kFloat)));
  copy_together(copies, true);
  EXPECT_TRUE(at::allclose(copies[0].place, 2 * matrix.t()));
  EXPECT_TRUE(at::allclose(copies[1].place, 2 * half.to(at::kFloat)));
  EXPECT_TRUE(at::equal(flat.narrow(0, 21, 43), untouched.narrow(0, 21, 43))) << "nothing beside them changes";
}

TEST(BatchedCopy, MayBeNone) { EXPECT_NO_THROW(copy_together({}, true)); }

}  // namespace
}  // namespace paceline::tensor
