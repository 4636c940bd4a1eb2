#include "paceline/train/time_sheet.h"

#include <gtest/gtest.h>

namespace paceline::train {
namespace {

using observe::WallTime;
using std::chrono::milliseconds;

TEST(TimeSheet, EveryMomentBelongsToOnePart) {
  VirtualClock clock;
  clock.advance(milliseconds(250));
  TimeSheet sheet(clock, milliseconds(50), &WallTime::start);
  clock.advance(milliseconds(800));
  sheet.turn_to(&WallTime::rest);
  {
    const auto training = sheet.enter(&WallTime::steps);
    clock.advance(milliseconds(2000));
    {
      const auto waiting = sheet.enter(&WallTime::data);
      clock.advance(milliseconds(300));
    }
    clock.advance(milliseconds(1000));
    const auto evaluating = sheet.enter(&WallTime::evaluation);
    clock.advance(milliseconds(40));
    const auto pause = sheet.enter(&WallTime::checkpoints);
    clock.advance(milliseconds(2));
  }
  clock.advance(milliseconds(5));
  const WallTime wall = sheet.read();
  EXPECT_DOUBLE_EQ(wall.start, 1.0) << "what passed before the sheet was made too";
  EXPECT_DOUBLE_EQ(wall.steps, 3.0);
  EXPECT_DOUBLE_EQ(wall.data, 0.3);
  EXPECT_DOUBLE_EQ(wall.evaluation, 0.04);
  EXPECT_DOUBLE_EQ(wall.checkpoints, 0.002);
  EXPECT_DOUBLE_EQ(wall.rest, 0.005);
  EXPECT_DOUBLE_EQ(wall.total(), seconds(clock.now()) - 0.05);
}

}  // namespace
}  // namespace paceline::train
