// The predictors that LC-ASGD's own are held against, and what all rows of the table have in common.
#include <gmock/gmock.h>

#include <cmath>
#include <tuple>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/random.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/ps/predictors/lstm_predictors.h"
#include "tests/message_of.h"

namespace paceline::ps {
namespace {

RandomStream stream() { return RandomStream(7, Purpose::test, 0); }

/// Falls from 2.3 to 0.3 within some hundred values.
double falling(int index, RandomStream& random) { return 0.3 + 2 * std::exp(-index / 170.0) + 0.05 * random.normal(); }

/// What a recording of two workers that take turns looks like: losses 1.5, 2.5, …; of the steps, only the first worker's vary.
constexpr const char* kRecording =
    "report,predicted_loss,actual_loss,predicted_steps,actual_steps,worker,steps_ahead,delay_loss,scale\n"
    "1,0,1.5,nan,nan,1,0,0,1\n"
    "2,0,2.5,0,4,0,0,0,1\n"
    "3,0,nan,0,1,1,0,0,1\n"
    "4,0,4.5,0,6,0,0,0,1\n";

class RecordedPredictor : public testing::Test {
 protected:
  RecordedPredictor() { write_atomically(file(), kRecording); }

  std::filesystem::path file() const { return folder_ / "predictions.csv"; }
  PredictorConfig config() const { return {.recording = file().string()}; }
  static Predictor predictor() { return find(predictors(), "predictor", "recorded").make; }

 private:
  TemporaryFolder folder_;
};

class PredictorTable : public RecordedPredictor, public testing::WithParamInterface<std::string> {
 protected:
  static Predictor row() { return find(predictors(), "predictor", GetParam()).make; }
};

TEST_P(PredictorTable, LossesResumeWithTheSameBits) {
  const auto saved = row().losses(config(), 1), resumed = row().losses(config(), 1);
  RandomStream random = stream();
  for (int index = 0; index < 30; ++index) saved->observe(falling(index, random), index % 4, true);
  resumed->load(saved->save());
  for (int index = 30; index < 60; ++index) {
    const double loss = falling(index, random);
    const LossForecast a = saved->observe(loss, index % 4, true), b = resumed->observe(loss, index % 4, true);
    EXPECT_EQ(std::tuple(a.sum, a.derivative, a.next), std::tuple(b.sum, b.derivative, b.next));
    EXPECT_EQ(a.sum == 0, index % 4 == 0);
  }
  const std::vector<float> state = saved->save();
  EXPECT_EQ(state, resumed->save());
  EXPECT_THROW(saved->load(std::span(state).first(state.size() - 1)), ConfigError);
  EXPECT_EQ(saved->save(), state);
}

TEST_P(PredictorTable, StepsResumeWithTheSameBitsAndTakeNewWorkers) {
  const auto saved = row().steps(config(), 2, 1), resumed = row().steps(config(), 2, 1);
  RandomStream random = stream();
  const auto visit = [](StepPredictor& predictor, int worker, double time) { return predictor.observe(worker, 3, time, 2 * time); };
  for (int index = 0; index < 30; ++index) visit(*saved, index % 2, random.uniform());
  resumed->load(saved->save());
  for (int index = 0; index < 30; ++index) {
    if (index == 20) saved->forget(1), resumed->forget(1);
    const double time = random.uniform(), said = visit(*saved, index % 4, time);
    EXPECT_EQ(said, visit(*resumed, index % 4, time));
    EXPECT_GE(said, 0);
  }
  EXPECT_EQ(saved->save(), resumed->save());
  EXPECT_THROW(saved->observe(-1, 0, 0.1, 0.1), InternalError);
}

std::vector<std::string> rows_of_the_table() {
  std::vector<std::string> keys;
  for (const auto& row : predictors()) keys.emplace_back(row.key);
  return keys;
}

INSTANTIATE_TEST_SUITE_P(Ps, PredictorTable, testing::ValuesIn(rows_of_the_table()), [](const auto& one) { return one.param; });

std::unique_ptr<LossPredictor> losses_of(const std::string& name) { return find(predictors(), "predictor", name).make.losses({}, 1); }
std::unique_ptr<StepPredictor> steps_of(const std::string& name) { return find(predictors(), "predictor", name).make.steps({}, 2, 1); }

TEST(MeanPredictors, RepeatTheLastOrTakeAMean) {
  const auto last = losses_of("last"), ema = losses_of("ema"), constant = losses_of("constant");
  for (double loss = 1; loss < 20; ++loss)
    for (const auto& predictor : {&last, &ema, &constant}) (*predictor)->observe(loss, 1, false);
  const auto forecast = [](const auto& predictor) { return predictor->observe(20, 3, true); };
  const LossForecast of_last = forecast(last), of_all = forecast(constant), of_ema = forecast(ema);
  EXPECT_EQ(std::tuple(of_last.next, of_last.sum, of_last.derivative), std::tuple(20, 60, 3));
  EXPECT_NEAR(of_all.next, 10.5, 1e-5);
  EXPECT_NEAR(of_all.sum, 31.5, 1e-5);
  EXPECT_NEAR(of_all.derivative, 3 / 20.0, 1e-6);
  double mean = 0;
  for (int loss = 1; loss <= 20; ++loss) mean += std::max(0.1, 1.0 / loss) * (loss - mean);
  EXPECT_NEAR(of_ema.next, mean, 1e-5);
  EXPECT_NEAR(of_ema.derivative, 0.3, 1e-6);
  EXPECT_NEAR(forecast(constant).next, (210 + 20) / 21.0, 1e-5);
}

TEST(MeanPredictors, CountEachWorkersStepsFromItsSecondVisit) {
  const auto last = steps_of("last"), constant = steps_of("constant");
  for (const auto& predictor : {&last, &constant}) {
    EXPECT_EQ((*predictor)->observe(0, 9, 0, 0), 9);  // the caller's guess
    EXPECT_EQ((*predictor)->observe(0, 2, 0, 0), 2);
    EXPECT_EQ((*predictor)->observe(1, 7, 0, 0), 7);
  }
  EXPECT_EQ(last->observe(0, 5, 0, 0), 5);
  EXPECT_EQ(constant->observe(0, 5, 0, 0), 3.5);
  constant->forget(0);
  EXPECT_EQ(constant->observe(0, 0, 0, 0), 0);
}

TEST(ShuffledPredictor, GivesOutTheForecastsOfItsLstmAtOtherTimes) {
  const auto shuffled = losses_of("shuffled");
  LstmLosses lstm({}, 1);
  std::vector<double> made;
  int own = 0;
  RandomStream random = stream();
  for (int index = 0; index < 200; ++index) {
    const double loss = falling(index, random);
    made.push_back(static_cast<float>(lstm.observe(loss, 2, false).next));
    const LossForecast given = shuffled->observe(loss, 2, false);
    EXPECT_THAT(made, testing::Contains(given.next)) << index;
    EXPECT_NEAR(given.sum, 2 * given.next, 0.5);
    own += given.next == made.back();
  }
  EXPECT_LT(own, 40);
}

TEST_F(RecordedPredictor, KnowsWhatCameAndHowManySteps) {
  const auto losses = predictor().losses(config(), 1);
  EXPECT_EQ(losses->observe(0.5, 2, true).sum, 1.5 + 2.5);
  const LossForecast third = losses->observe(1.5, 3, true);
  EXPECT_EQ(std::tuple(third.next, third.sum, third.derivative), std::tuple(2.5, 3 * (2.5 + 4.5) / 2, 0)) << "one of them is unknown";
  EXPECT_EQ(losses->observe(2.5, 0, true).sum, 0);
  EXPECT_EQ(losses->observe(3.5, 1, true).next, 4.5);
  EXPECT_EQ(losses->observe(4.5, 2, true).sum, 9) << "nothing was recorded after it";
  const auto steps = predictor().steps(config(), 2, 1);
  EXPECT_EQ(steps->observe(0, 0, 0, 0), 4);
  EXPECT_EQ(steps->observe(1, 0, 0, 0), 1);
  EXPECT_EQ(steps->observe(0, 4, 0, 0), 6);
  EXPECT_EQ(steps->observe(0, 6, 0, 0), 6) << "the recording has ended: as before";
}

TEST_F(RecordedPredictor, NamesWhatIsWrongWithTheFile) {
  const auto refused = [&](const std::string& text) {
    write_atomically(file(), text);
    return message_of<DataError>([&] { predictor().losses(config(), 1); });
  };
  EXPECT_THAT(refused("report,actual_loss,worker\n"), testing::HasSubstr("actual_steps"));
  EXPECT_THAT(refused("actual_loss,actual_steps,worker\n1,2,0\n1,two,0\n"),
              testing::AllOf(testing::HasSubstr("line 3"), testing::HasSubstr("two")));
  EXPECT_THAT(refused("actual_loss,actual_steps,worker\n1,2\n"), testing::HasSubstr("worker"));
  EXPECT_THROW(predictor().losses({}, 1), ConfigError);
}

}  // namespace
}  // namespace paceline::ps
