#include "paceline/observe/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <thread>

#include "paceline/observe/formatting.h"

namespace paceline::observe {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

class ProgressTest : public testing::Test {
 protected:
  /// A run of two epochs with four steps of 32 samples, each of half a second.
  void start(bool live, int width = 80) {
    terminal.out = &out;
    terminal.live = live;
    terminal.width = [width] { return width; };
    options.is_there = [this](const std::string& file) { return drawn && file == "runs/lenet-mnist/curve.svg"; };
    options.memory = [] { return std::int64_t{1'234'567'890}; };
    progress.emplace(terminal, clock, options);
    RunStarted run;
    run.run = "runs/lenet-mnist";
    run.network = "lenet";
    run.dataset = "mnist";
    run.optimizer = "sgd";
    run.strategy = "allreduce";
    run.device = "cpu";
    run.precision = "float32";
    run.parameters = 61706;
    run.train_samples = train_samples;
    run.test_samples = 64;
    run.batch = 32;
    run.epochs = 2;
    run.steps_per_epoch = 4;
    run.workers = 2;
    run.engine = "shm", run.first_step = first_step;
    run.per_token = per_token;
    progress->on(run);
    started = out.str();
    out.str("");
  }

  StepDone made_step(std::int64_t number, double loss = 0.5, Nanoseconds duration = milliseconds(500)) {
    clock.advance(duration);
    StepDone event;
    event.step = number;
    event.steps = 8;
    event.epoch = (number + 3) / 4;
    event.epoch_step = (number - 1) % 4 + 1, event.epoch_steps = 4;
    event.samples = 32;
    event.loss = loss;
    event.accuracy = 0.75;
    event.duration = duration;
    event.communication_share = share;
    return event;
  }

  /// What the step writes.
  std::string step(std::int64_t number, double loss = 0.5, Nanoseconds duration = milliseconds(500)) {
    return told(made_step(number, loss, duration));
  }

  std::string told(const Event& event) {
    out.str("");
    progress->on(event);
    return out.str();
  }

  static EpochDone epoch(std::int64_t number) { return {number, 2, 0.4, 0.8, milliseconds(2000), 128}; }

  std::ostringstream out;
  VirtualClock clock;
  Terminal terminal;
  ProgressOptions options;
  std::optional<Progress> progress;
  std::string started;
  bool per_token = false, drawn = true;
  std::int64_t train_samples = 128, first_step = 0;
  double share = 0;
};

TEST_F(ProgressTest, BeforeTheRunATableSaysWhatIsTrained) {
  start(true);
  EXPECT_EQ(started,
            "╭─ paceline ───────────────────────────────────────────────────────────────╮\n"
            "│  network   lenet, 61.7 k parameters                                      │\n"
            "│  data      mnist, 128 training and 64 test samples                       │\n"
            "│  training  sgd, batch 32, 2 epochs of 4 steps                            │\n"
            "│  workers   2 on cpu, float32, allreduce over shm                         │\n"
            "│  run       runs/lenet-mnist                                              │\n"
            "╰──────────────────────────────────────────────────────────────────────────╯\n");
}

TEST_F(ProgressTest, SamplesThatSitOutAnEpochAreNamed) {
  train_samples = 150;
  start(true);
  EXPECT_NE(started.find("128 of 150 per epoch; data.drop_last=false uses all"), std::string::npos) << started;
}

TEST_F(ProgressTest, TheLiveLineShowsTheStepTheFiguresAndTheTimeLeft) {
  start(true);
  EXPECT_EQ(step(1), "\repoch 1/2  ━━━──────────  1/4  loss 0.5000  acc 75.0%  64.0/s  4s left  1.23 GB\x1b[K");
  EXPECT_EQ(step(2), "\repoch 1/2  ━━━━━━╸──────  2/4  loss 0.5000  acc 75.0%  64.0/s  3s left  1.23 GB\x1b[K");
}

TEST_F(ProgressTest, AWideLineShowsEverything) {
  start(true, 120);
  share = 0.12;
  step(1);
  told(CheckpointWritten{1, "c", 100, milliseconds(1)});
  const std::string line = step(2);
  EXPECT_EQ(line,
            "\repoch 1/2  ━━━━━━━━━─────────  2/4  loss 0.5000  acc 75.0%  64.0/s  3s left  comm 12%  1.23 GB  2 workers  saved 1s "
            "ago\x1b[K");
}

TEST_F(ProgressTest, NoLineIsWiderThanItsTerminal) {
  for (int width = 1; width <= 160; ++width) {
    start(true, width);
    std::string line = step(1, 12345.678);
    line = line.substr(1, line.size() - 1 - 3);
    EXPECT_LT(columns(line), std::max(2, width)) << line;
    progress.reset();
    clock = VirtualClock();
  }
}

TEST_F(ProgressTest, ALineIsRedrawnAtMostTenTimesASecond) {
  start(true);
  EXPECT_NE(step(1, 0.5, milliseconds(10)), "");
  for (int i = 2; i <= 3; ++i) EXPECT_EQ(step(i, 0.5, milliseconds(40)), "");
  EXPECT_NE(step(4, 0.5, milliseconds(40)), "");
}

TEST_F(ProgressTest, ALineOfTheLogStandsAboveTheLiveLine) {
  start(true);
  const std::string line = step(1);
  out.str("");
  testing::internal::CaptureStderr();
  log::warning("the disk is nearly full");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the disk is nearly full\n"));
  EXPECT_EQ(out.str(), "\r\x1b[K" + line) << "wiped before, drawn again behind";
  out.str("");
  log::debug("nobody sees this");
  EXPECT_EQ(out.str(), "");
}

TEST_F(ProgressTest, LinesOfTheLogComeFromAnyThread) {
  start(true);
  testing::internal::CaptureStderr();
  std::thread other([] {
    for (int i = 0; i < 50; ++i) log::info("line {}", i);
  });
  for (int i = 1; i <= 8; ++i) progress->on(made_step(i));  // nobody reads what is written meanwhile
  other.join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("line 49\n"));
}

TEST_F(ProgressTest, AfterAnErrorTheNextTextBeginsOnItsOwnLine) {
  start(true);
  step(1);
  out.str("");
  progress.reset();
  EXPECT_EQ(out.str(), "\n");
}

TEST_F(ProgressTest, AnEpochLeavesARowWithItsEvaluation) {
  start(true);
  step(4);
  EXPECT_THAT(told(epoch(1)), HasSubstr("4/4"));  // the full bar stays while the evaluation lasts
  EXPECT_EQ(told(Evaluated{1, 4, 0.6, 0.7}),
            "\r\x1b[K"
            "    epoch  train loss  accuracy  test loss  accuracy      time  samples/s\n"
            "      1/2      0.4000    80.00%     0.6000    70.00%     2.0 s       64.0\n");
  step(8);
  told(epoch(2));
  EXPECT_EQ(told(Evaluated{2, 8, 0.6, 0.7}),  // the header comes once
            "\r\x1b[K      2/2      0.4000    80.00%     0.6000    70.00%     2.0 s       64.0\n");
}

TEST_F(ProgressTest, AnEpochThatNobodyEvaluatesIsNotLost) {
  start(true);
  step(4);
  told(epoch(1));
  EXPECT_THAT(step(5), HasSubstr("1/2      0.4000    80.00%          -         -     2.0 s       64.0\n\repoch 2/2"));
}

TEST_F(ProgressTest, AnEvaluationInsideAnEpochHasItsOwnLine) {
  start(true);
  step(2);
  EXPECT_EQ(told(Evaluated{1, 2, 0.6, 0.7}), "\r\x1b[Kstep 2: test loss 0.6000, accuracy 70.00%\n");
}

TEST_F(ProgressTest, LanguageModelsShowTheLossACharacter) {
  per_token = true;
  start(true);
  EXPECT_THAT(step(4), Not(HasSubstr("acc")));
  told(epoch(1));
  EXPECT_EQ(told(Evaluated{1, 4, 1.6, 0}),
            "\r\x1b[K"
            "    epoch  train loss/char  test loss/char      time  samples/s\n"
            "      1/2           0.4000          1.6000     2.0 s       64.0\n");
}

TEST_F(ProgressTest, ColoursMarkTheBestEpoch) {
  terminal.color = true;
  start(true);
  for (const auto& [number, accuracy, best] : {std::tuple{1, 0.7, true}, {2, 0.6, false}, {3, 0.71, true}}) {
    step(4 * number);
    told(epoch(number));
    const std::string row = told(Evaluated{number, 4 * number, 0.6, accuracy});
    EXPECT_EQ(row.find("\x1b[32m") != std::string::npos, best) << row;
  }
}

TEST_F(ProgressTest, ALossThatIsNoNumberShowsAndPasses) {
  start(true);
  step(1);
  EXPECT_THAT(step(2, NAN), HasSubstr("loss nan"));
  EXPECT_THAT(step(3, 0.25), HasSubstr("loss 0.2500"));
}

TEST_F(ProgressTest, ElsewhereLinesComeSeldomAndNothingIsDrawnOver) {
  start(false);
  EXPECT_EQ(step(1), "epoch 1/2, step 1/8: loss 0.5000, accuracy 75.0%, 64.0 samples/s, memory 1.23 GB, 4s left\n");
  EXPECT_EQ(step(2), "");
  EXPECT_EQ(step(3, 0.5, milliseconds(9000)), "");
  EXPECT_NE(step(4), "");
  EXPECT_EQ(told(epoch(1)), "");
  EXPECT_EQ(told(Evaluated{1, 4, 0.6, 0.7}),
            "epoch 1/2: train loss 0.4000, accuracy 80.00%; test loss 0.6000, accuracy 70.00%; 2.0 s, 64.0 samples/s\n");
  EXPECT_EQ(told(CheckpointWritten{4, "runs/x/c", 2000, milliseconds(3)}), "checkpoint runs/x/c: 2.00 kB in 3 ms\n");
}

TEST_F(ProgressTest, ElsewhereLinesMayBeCountedInSteps) {
  options.line_every_steps = 3;
  start(false);
  std::vector<int> lines;
  for (int i = 1; i <= 8; ++i)
    if (!step(i).empty()) lines.push_back(i);
  EXPECT_EQ(lines, (std::vector<int>{1, 4, 7}));
}

TEST_F(ProgressTest, AfterTheRunASummarySaysWhatCameOutAndWhatToTypeNext) {
  start(true);
  step(8);
  told(CheckpointWritten{8, "runs/lenet-mnist/checkpoints/8", 100, milliseconds(1)});
  RunEnded end{2,
               8,
               2,
               256,
               4.0,
               64.0,
               0.4,
               0.6,
               0.7,
               "0123456789abcdef",
               "fedcba9876543210",
               "runs/lenet-mnist",
               "",
               observe::Communication{.exposed = 0.12, .hidden = 0.3, .straggler_spread = 0, .bytes_per_step = 4.2e6, .ratio = 4}};
  end.checkpoints = observe::Checkpointing{.written = 3, .paused_s = 0.75, .final_wait_s = 0.25, .writer_s = 2};
  end.wall = {.start = 1.5, .steps = 4.25, .data = 0.02, .evaluation = 0.25, .checkpoints = 0.75, .final_wait = 1, .rest = 0.23};
  EXPECT_EQ(told(end),
            "\r\x1b[K"
            "╭─ done ───────────────────────────────────────────────────────────────────╮\n"
            "│  trained        2 epochs, 8 steps, 256 samples                           │\n"
            "│  time           8.0 s: steps 53%, start 19%, disk 12%, checkpoints 9%    │\n"
            "│  speed          64.0 samples/s on 2 workers                              │\n"
            "│  communication  12% exposed, 30% hidden; 4.20 MB per step (4.0× less)    │\n"
            "│  checkpoints    3 written, paused 750 ms, at the end 250 ms (20.0%)      │\n"
            "│  train loss     0.4000                                                   │\n"
            "│  test loss      0.6000                                                   │\n"
            "│  test accuracy  70.00%                                                   │\n"
            "│  state          0123456789abcdef                                         │\n"
            "╰──────────────────────────────────────────────────────────────────────────╯\n"
            "   run          runs/lenet-mnist\n"
            "   curve        runs/lenet-mnist/curve.svg\n"
            "   tensorboard  tensorboard --logdir runs/lenet-mnist\n"
            "   checkpoint   paceline checkpoint show runs/lenet-mnist\n");
}

TEST_F(ProgressTest, AResumedRunSaysWhatIsOfTheWholeAndWhatOfItsLastPart) {
  first_step = 4, start(false);
  for (int i = 5; i <= 8; ++i) step(i);
  RunEnded end;
  end.steps = 8, end.samples = 256, end.seconds = 10, end.samples_per_s = 25.6, end.checkpoints = Checkpointing{.paused_s = 2};
  const std::string text = told(end), part = text.substr(std::min(text.find("after step 4"), text.size()));
  EXPECT_THAT(text, AllOf(HasSubstr("8 steps, 256 samples"), HasSubstr("25.6 samples/s")));
  EXPECT_THAT(part, AllOf(HasSubstr("4 steps"), HasSubstr("64.0 samples/s"), HasSubstr("50.0%"), Not(HasSubstr("25.6"))));
}

TEST_F(ProgressTest, ARunThatStoppedSaysWhyAndHidesWhatItDoesNotKnow) {
  start(false);
  step(1);
  RunEnded end;
  end.run = "runs/lenet-mnist";
  end.stopped = "SIGTERM";
  const std::string text = told(end);
  EXPECT_THAT(text, HasSubstr("stopped: SIGTERM"));
  EXPECT_THAT(text, Not(HasSubstr("test")));
  EXPECT_THAT(text, Not(HasSubstr("checkpoint")));
  EXPECT_THAT(text, HasSubstr("curve.svg"));
  drawn = false;  // the disk was full
  EXPECT_THAT(told(end), Not(HasSubstr("curve")));
}

TEST_F(ProgressTest, ARunThatStoppedWithACheckpointSaysHowToGoOn) {
  start(false);
  step(1);
  told(CheckpointWritten{1, "runs/lenet-mnist/checkpoints/1", 100, milliseconds(1)});
  RunEnded end;
  end.run = "runs/lenet-mnist";
  end.stopped = "SIGTERM";
  EXPECT_THAT(told(end), HasSubstr("paceline train --resume runs/lenet-mnist\n"));
}

TEST_F(ProgressTest, ARunThatCannotBeResumedNamesItsLastCheckpoint) {
  options.next = {{"start anew", "train {run}/recipe.toml model.weights={last}"}};
  start(false);
  step(1);
  told(CheckpointWritten{1, "runs/x/checkpoints/1", 100, milliseconds(1)});
  RunEnded end;
  end.run = "runs/x";
  EXPECT_THAT(told(end), Not(HasSubstr("start anew"))) << "it is done";
  end.stopped = "SIGTERM";
  EXPECT_THAT(told(end), HasSubstr("train runs/x/recipe.toml model.weights=runs/x/checkpoints/1\n"));
}

TEST(RecentMean, StartsAtTheFirstValueAndFollows) {
  RecentMean mean;
  EXPECT_TRUE(std::isnan(mean.value()));
  mean.add(2);
  EXPECT_DOUBLE_EQ(mean.value(), 2);
  mean.add(4);  // weights 0.09 and 0.1
  EXPECT_DOUBLE_EQ(mean.value(), (0.09 * 2 + 0.1 * 4) / 0.19);
}

TEST(Memory, IsThatOfThisProcess) { EXPECT_GT(resident_bytes(), 1'000'000); }

}  // namespace
}  // namespace paceline::observe
