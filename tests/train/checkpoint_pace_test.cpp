// How often checkpoints are written: what they cost, the wait for the last one included.
#include <ATen/ATen.h>

#include "paceline/comm/engine.h"
#include "paceline/train/checkpoint_pace.h"
#include "paceline/train/checkpointer.h"
#include "runs.h"

namespace paceline::train {
namespace {

TEST(Pace, KeepsToItsShareByWhatCheckpointsCost) {
  CheckpointPace pace(0.01, 5000, /*guess=*/0.125);
  EXPECT_FALSE(pace.affordable(5037)) << "the last one may come at any moment, and counts too, with the wait for it";
  EXPECT_TRUE(pace.affordable(5038));
  EXPECT_FALSE(pace.due(5059)) << "the run has just begun";
  EXPECT_TRUE(pace.due(5060)) << "an epoch that takes so long has one in its middle";
  pace.begun(5100), pace.spent(0.5), pace.spent(0.25);
  EXPECT_FALSE(pace.affordable(5224)) << "0.75 s are spent; the next one and the last one cost as much each";
  EXPECT_TRUE(pace.affordable(5225));
  EXPECT_FALSE(pace.due(5224));
  EXPECT_TRUE(pace.due(5225));
  pace.wrote(0.25);
  EXPECT_FALSE(pace.affordable(5249)) << "the run would wait as long for the last one";
  EXPECT_TRUE(pace.affordable(5250));
  pace.begun(5250), pace.spent(0.005);
  EXPECT_TRUE(pace.affordable(5250)) << "it was cheap: 0.755 + 2 × 0.005 s of 250 s";
  EXPECT_FALSE(pace.due(5309)) << "within a minute";
  EXPECT_TRUE(pace.due(5310));

  CheckpointPace every_epoch(1, 0, 9), at_the_end(0, 0, 0);
  EXPECT_TRUE(every_epoch.affordable(0));
  every_epoch.begun(100), every_epoch.spent(50);
  EXPECT_TRUE(every_epoch.affordable(100));
  EXPECT_FALSE(every_epoch.due(1e6));
  EXPECT_FALSE(at_the_end.affordable(1e6));
  EXPECT_FALSE(at_the_end.due(1e6));
}

/// Runs on by a second whenever it is read.
class Ticking final : public Clock {
 public:
  Nanoseconds now() const override { return std::chrono::seconds(++ticks_); }

 private:
  mutable std::atomic<int> ticks_{0};
};

// Writing takes at least the second between two looks at the clock: more than a twentieth of the few seconds in all.
TEST(Pace, TheNextOneWaitsForTheWritingOfTheLast) {
  const Folder folder;
  observe::Bus bus;
  const Ticking clock;
  const auto alone = std::move(comm::local_group(1).front());
  Checkpointer checkpointer(*alone, bus, clock, folder.path(), {.share = 0.05});
  EXPECT_EQ(checkpointer.wish(), Checkpointer::Wish::at_epoch);
  CheckpointMetadata metadata;
  metadata.position.step = 1, metadata.recipe = "[train]\n", metadata.network = "mlp";
  const std::vector<NamedTensor> state = {{"model.a", at::ones({3})}};
  checkpointer.begin(metadata, state, true);
  EXPECT_TRUE(checkpointer.finish());
  EXPECT_EQ(checkpointer.wish(), Checkpointer::Wish::none);
}

}  // namespace
}  // namespace paceline::train
