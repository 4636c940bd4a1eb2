#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "paceline/base/error.h"
#include "tests/compress/support.h"

namespace paceline::compress {
namespace {

using testing::HasSubstr;

std::vector<std::array<std::int64_t, 4>> parts_of(const RangeLayout& layout) {
  std::vector<std::array<std::int64_t, 4>> parts;
  for (const Part& part : layout.parts) parts.push_back({part.offset, part.count, part.rows, part.columns});
  return parts;
}

TEST(RangeLayout, SlicesCutPartsAndCountFromTheirBegin) {
  const RangeLayout layout{.parts = {{2, 6, 2, 3}, {10, 4, 1, 4}, {20, 4, 2, 2}}, .length = 26};
  EXPECT_EQ(layout.elements(), 14);
  EXPECT_EQ(parts_of(layout.slice(0, 26)), parts_of(layout));
  using Parts = std::vector<std::array<std::int64_t, 4>>;
  EXPECT_EQ(parts_of(layout.slice(4, 12)), (Parts{{0, 4, 1, 4}, {6, 2, 1, 2}}));  // the matrix was cut: it is none any more
  EXPECT_EQ(parts_of(layout.slice(10, 26)), (Parts{{0, 4, 1, 4}, {10, 4, 2, 2}}));
  EXPECT_EQ(parts_of(layout.slice(14, 20)), Parts{});
  EXPECT_EQ(parts_of(layout.slice(8, 8)), Parts{});
  EXPECT_EQ(layout.slice(4, 12).length, 8);
}

TEST(CompressConfig, RefusesWhatCannotBe) {
  CompressConfig config;
  Config recipe;
  recipe.bind("compress", "gradient compression", config);
  recipe.set("compress.density=0.001");
  EXPECT_EQ(config.density, 0.001);
  for (const char* wrong : {"compress.density=-0.1", "compress.density=1.5", "compress.block=0", "compress.rank=0", "compress.threshold=0",
                            "compress.sign_scale=-1"})
    EXPECT_THROW(recipe.set(wrong), ConfigError) << wrong;
}

TEST(Registry, EveryRowHasOneOfTheTwo) {
  for (const auto& row : compressors()) EXPECT_NE(row.make.coder == nullptr, row.make.linear == nullptr) << row.key;
  EXPECT_THAT([] { find(compressors(), "compressor", "top_k"); }, testing::ThrowsMessage<ConfigError>(HasSubstr("topk")));
}

}  // namespace
}  // namespace paceline::compress
