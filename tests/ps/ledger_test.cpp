// What a server knows of the minibatches that it has handled, however late the messages about them come.
#include "paceline/ps/ledger.h"

#include <gtest/gtest.h>

namespace paceline::ps {
namespace {

TEST(SequenceSet, ALateWatermarkTakesNothingBack) {
  SequenceSet numbers;
  numbers.insert_all_below(10);
  numbers.insert_all_below(5);  // sent before the other one
  EXPECT_EQ(numbers.watermark(), 10);
  EXPECT_TRUE(numbers.contains(7));
  EXPECT_FALSE(numbers.insert(9));
}

TEST(Ledger, APushThatCarriesAnOldWatermarkTakesNothingBack) {
  Ledger ledger;
  ledger.handle(12, 10);
  ledger.handle(14, 0);
  for (const std::int64_t number : {1, 9, 12, 14}) EXPECT_TRUE(ledger.handled(number)) << number;
  for (const std::int64_t number : {10, 11, 13, 15}) EXPECT_FALSE(ledger.handled(number)) << number;
}

TEST(Ledger, ForgetsTheAdviceOfWhatIsHandledOrComplete) {
  Ledger ledger;
  for (const std::int64_t number : {3, 5, 7}) ledger.advise(number, {.scale = 0.5, .steps = 2, .delay = 1});
  ledger.handle(5, 4);
  EXPECT_EQ(ledger.advice(3), nullptr) << "complete everywhere";
  EXPECT_EQ(ledger.advice(5), nullptr) << "handled";
  ASSERT_NE(ledger.advice(7), nullptr);
  EXPECT_EQ(ledger.advice(7)->scale, 0.5);
}

}  // namespace
}  // namespace paceline::ps
