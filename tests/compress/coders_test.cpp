// What holds for every Coder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "tests/compress/support.h"

namespace paceline::compress {
namespace {

using testing::Each;
using testing::HasSubstr;

class CoderTest : public testing::TestWithParam<std::string> {
 protected:
  const std::string key = GetParam();
  const std::unique_ptr<Coder> worker = coder(key);
  const RangeLayout layout = odd_layout();
};

TEST_P(CoderTest, ValuesAreTheCodePlusWhatIsLeft) {
  for (const float deviation : {1e-6f, 1e-2f, 100.0f}) {
    const std::vector<float> before = gradient(layout, 1, deviation);
    std::vector<float> after = before;
    const std::vector<float> said = decode(*worker, layout, encode(*worker, layout, after));
    for (std::size_t i = 0; i < before.size(); ++i) {
      const float size = std::max(std::abs(said[i]), std::abs(before[i]));
      ASSERT_NEAR(before[i], static_cast<double>(said[i]) + after[i], 2e-7 * size) << "value " << i;
    }
  }
}

// Over many steps with feedback nothing is lost: what was decoded plus the residual is the sum of the gradients.
TEST_P(CoderTest, ErrorFeedbackLosesNothing) {
  constexpr int kSteps = 50;
  std::vector<float> residual(static_cast<std::size_t>(layout.length));
  std::vector<double> gradients(residual.size()), decoded(residual.size());
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> g = gradient(layout, static_cast<std::uint64_t>(step));
    for (std::size_t i = 0; i < g.size(); ++i) gradients[i] += g[i], residual[i] += g[i];
    const std::vector<float> said = decode(*worker, layout, encode(*worker, layout, residual, {.step = step, .epoch = 0.2 * step}));
    for (std::size_t i = 0; i < g.size(); ++i) decoded[i] += said[i];
  }
  double said = 0;
  for (std::size_t i = 0; i < residual.size(); ++i) {
    ASSERT_NEAR(decoded[i] + residual[i], gradients[i], 1e-5) << "value " << i;
    said += decoded[i] * decoded[i];
  }
  EXPECT_GT(said, 0);
}

TEST_P(CoderTest, TheSameMomentGivesTheSameCode) {
  const std::vector<float> g = gradient(layout, 2);
  const CodingContext context{.seed = 3, .rank = 1, .step = 7, .epoch = 9, .place = 5};
  std::vector<float> first = g, second = g, used = gradient(layout, 99);
  const auto code = encode(*worker, layout, first, context);
  const auto fresh = coder(key);
  encode(*fresh, layout, used, {.step = 1});  // what a Coder did before must not matter
  EXPECT_EQ(encode(*fresh, layout, second, context), code);
  EXPECT_EQ(first, second);
}

// The bits are those of every processor and of every width of vectors; a change of them is a change of all runs.
TEST_P(CoderTest, TheBitsAreTheSameEverywhere) {
  const std::map<std::string, std::uint32_t> known = {{"int8", 3939681001},    {"dynamic8", 2681290183}, {"onebit", 127451401},
                                                      {"ternary", 2170423136}, {"sign", 1494382217},     {"threshold", 2502445341},
                                                      {"topk", 3949765241},    {"dgc", 4145632987}};
  RandomStream stream(1, Purpose::test);
  std::vector<float> values(static_cast<std::size_t>(layout.length));
  for (const Part& part : layout.parts)
    for (std::int64_t i = 0; i < part.count; ++i) values[part.offset + i] = (stream.uniform() - 0.5f) * stream.uniform();
  const auto code = encode(*worker, layout, values, {.seed = 1, .rank = 2, .step = 3, .epoch = 4, .place = 5});
  EXPECT_EQ(crc32c(code), known.at(key));
}

TEST_P(CoderTest, CodesStayWithinTheirBound) {
  for (const std::int64_t count : {0, 1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 511, 512, 513, 5000}) {
    const RangeLayout part = one_part(count);
    std::vector<float> values = gradient(part, 4, 1);
    const std::vector<float> before = values;
    const auto code = encode(*worker, part, values);
    EXPECT_LE(static_cast<std::int64_t>(code.size()), worker->bound(part));
    const std::vector<float> said = decode(*worker, part, code);
    for (std::size_t i = 0; i < said.size(); ++i) ASSERT_NEAR(said[i] + values[i], before[i], 1e-6) << count << " values, " << i;
  }
  std::vector<float> none;
  EXPECT_THAT(decode(*worker, RangeLayout{}, encode(*worker, RangeLayout{}, none)), testing::IsEmpty());
}

TEST_P(CoderTest, GapsAreNotTouched) {
  std::vector<float> values = gradient(layout, 5);
  const auto code = encode(*worker, layout, values);
  const std::vector<float> said = decode(*worker, layout, code, 3);
  std::int64_t end = 0;
  for (std::size_t i = 0; i <= layout.parts.size(); ++i) {
    const std::int64_t begin = i < layout.parts.size() ? layout.parts[i].offset : layout.length;
    EXPECT_THAT(std::vector<float>(said.begin() + end, said.begin() + begin), Each(0.0f));
    EXPECT_THAT(std::vector<float>(values.begin() + end, values.begin() + begin), Each(0.0f));
    if (i < layout.parts.size()) end = begin + layout.parts[i].count;
  }
}

TEST_P(CoderTest, SlicesAreCodedOnTheirOwn) {
  const std::vector<float> before = gradient(layout, 6);
  for (const int workers : {2, 3, 5}) {
    for (int rank = 0; rank < workers; ++rank) {
      const std::int64_t begin = layout.length * rank / workers, end = layout.length * (rank + 1) / workers;
      const RangeLayout slice = layout.slice(begin, end);
      std::vector<float> values(before.begin() + begin, before.begin() + end);
      const std::vector<float> own = values, said = decode(*worker, slice, encode(*worker, slice, values));
      for (std::size_t i = 0; i < own.size(); ++i) ASSERT_NEAR(said[i] + values[i], own[i], 1e-8);
    }
  }
}

TEST_P(CoderTest, WeightsScaleWhatIsAdded) {
  std::vector<float> values = gradient(layout, 7);
  const auto code = encode(*worker, layout, values);
  const std::vector<float> once = decode(*worker, layout, code);
  std::vector<float> sum(once.size(), 1.0f);
  worker->decode_add(layout, code, 0.5f, sum.data());
  for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_FLOAT_EQ(sum[i], 1 + 0.5f * once[i]);
}

TEST_P(CoderTest, WrongSizesAreRefused) {
  std::vector<float> values = gradient(layout, 8);
  const auto code = encode(*worker, layout, values);
  std::vector<float> sum(values.size());
  const auto refused = [&](std::vector<std::byte> bytes) {
    bytes.shrink_to_fit();
    EXPECT_THROW(worker->decode_add(layout, bytes, 1, sum.data()), DataError) << bytes.size() << " bytes";
  };
  refused(std::vector<std::byte>(code.begin(), code.end() - 1));
  refused(std::vector<std::byte>(code.begin(), code.end() - 3));
  std::vector<std::byte> longer = code;
  longer.resize(static_cast<std::size_t>(worker->bound(layout)) + 8);
  refused(longer);
  EXPECT_THAT(sum, Each(0.0f));
  EXPECT_THAT([&] { worker->decode_add(layout, longer, 1, sum.data()); }, testing::ThrowsMessage<DataError>(HasSubstr("a code of " + key)));
}

// Whatever the bytes, decoding throws DataError or adds something inside; the sanitizers watch.
TEST_P(CoderTest, DamagedCodesDoNoHarm) {
  std::vector<float> values = gradient(layout, 9);
  const auto code = encode(*worker, layout, values);
  RandomStream stream(1, Purpose::test);
  for (int round = 0; round < 500; ++round) {
    auto damaged = code;
    for (int i = 0; i < 4; ++i) damaged[stream.below(damaged.size())] = static_cast<std::byte>(stream.next_u32());
    std::vector<float> sum(values.size());
    try {
      worker->decode_add(layout, damaged, 1, sum.data());
    } catch (const DataError&) {
      EXPECT_EQ(sum, std::vector<float>(values.size())) << "half of a refused code was added";
    }
  }
}

TEST_P(CoderTest, NanAndInfinityAreSeen) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = gradient(layout, 10);
    values[layout.parts[3].offset + 77] = bad;
    const std::vector<float> said = decode(*worker, layout, encode(*worker, layout, values));
    EXPECT_TRUE(std::any_of(said.begin(), said.end(), [](float value) { return !std::isfinite(value); })) << bad;
  }
}

TEST_P(CoderTest, ExtremeValuesDoNoHarm) {
  for (const float size : {0.0f, 1e-45f, 1e-38f, 1e-33f, 1e-30f, 1e30f, 3e38f}) {
    const RangeLayout part = one_part(1000);
    std::vector<float> values(1000, size);
    for (std::size_t i = 0; i < values.size(); i += 3) values[i] = -size;
    const std::vector<float> said = decode(*worker, part, encode(*worker, part, values));
    const bool finite = std::all_of(said.begin(), said.end(), [](float value) { return std::isfinite(value); });
    EXPECT_TRUE(finite || size >= 1e30f) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CoderTest, testing::ValuesIn(keys(true)), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace paceline::compress
