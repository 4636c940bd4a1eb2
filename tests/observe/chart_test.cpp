#include "paceline/observe/chart.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "paceline/base/error.h"
#include "paceline/observe/chart_axis.h"
#include "paceline/observe/curve.h"
#include "paceline/observe/metrics.h"
#include "paceline/observe/run_folder.h"
#include "paceline/observe/run_lock.h"
#include "paceline/observe/step_count.h"
#include "temp_folder.h"

namespace paceline::observe {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Not;
using testing::Pointwise;

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

std::vector<std::string> texts_of(const Scale& scale) {
  std::vector<std::string> texts;
  for (const auto& tick : scale.ticks()) texts.push_back(tick.text);
  return texts;
}

TEST(Ticks, AreRoundAndHoldTheInterval) {
  EXPECT_THAT(round_ticks(0, 2.3, 5), Pointwise(DoubleNear(1e-12), std::vector<double>{0, 0.5, 1, 1.5, 2, 2.5}));
  EXPECT_THAT(round_ticks(0.1, 0.3, 2), Pointwise(DoubleNear(1e-12), std::vector<double>{0.1, 0.2, 0.3}));
  EXPECT_THAT(round_ticks(-7, 12, 4), Pointwise(DoubleNear(1e-12), std::vector<double>{-10, -5, 0, 5, 10, 15}));
  EXPECT_THAT(log_ticks(3, 4000), Pointwise(DoubleNear(1e-9), std::vector<double>{1, 10, 100, 1000, 10000}));
  EXPECT_THAT(log_ticks(1, 10), Pointwise(DoubleNear(1e-9), std::vector<double>{1, 2, 5, 10}));
  EXPECT_LE(log_ticks(1e-300, 1e300).size(), 9u);
}

TEST(Ticks, HaveTextsThatTellThemApart) {
  EXPECT_EQ(tick_text(0, 1, Axis::Unit::number), "0");
  EXPECT_EQ(tick_text(1.5, 0.5, Axis::Unit::number), "1.5");
  EXPECT_EQ(tick_text(0.1 + 0.2, 0.1, Axis::Unit::number), "0.3");
  EXPECT_EQ(tick_text(12000, 2000, Axis::Unit::number), "12k");
  EXPECT_EQ(tick_text(1500, 500, Axis::Unit::number), "1.5k");
  EXPECT_EQ(tick_text(100020, 20, Axis::Unit::number), "100.02k");
  EXPECT_EQ(tick_text(2e-5, 1e-5, Axis::Unit::number), "2e-05");
  EXPECT_EQ(tick_text(0.925, 0.005, Axis::Unit::percent), "92.5%");
  EXPECT_EQ(tick_text(1, 0.2, Axis::Unit::percent), "100%");
}

TEST(Scale, ShowsZeroWhereItIsNear) {
  const double values[] = {0.3, 2.2};
  EXPECT_EQ(texts_of(Scale(Axis{}, values, 5, true)), (std::vector<std::string>{"0", "0.5", "1.0", "1.5", "2.0", "2.5"}));
}

TEST(Scale, PercentagesEndAtAHundred) {
  Axis axis;
  axis.unit = Axis::Unit::percent;
  const double values[] = {0.97};
  EXPECT_EQ(texts_of(Scale(axis, values, 5, true)).back(), "100%");
}

TEST(Scale, IsSoundForWhateverComes) {
  for (const bool log : {false, true})
    for (const auto& values :
         std::vector<std::vector<double>>{{}, {0}, {NAN}, {-1, -1}, {1e-30, 1e30}, {INFINITY, 1}, {5, 5}, {1e300, -1e300}}) {
      Axis axis;
      axis.log = log;
      const Scale scale(axis, values, 5, true);
      EXPECT_GE(scale.ticks().size(), 2u);
      EXPECT_LE(scale.ticks().size(), 20u);
      for (double value : values)
        if (scale.holds(value)) {
          EXPECT_GE(scale.place(value), -1e-9);
          EXPECT_LE(scale.place(value), 1 + 1e-9);
        }
    }
}

TEST(Scale, NeighboursAreAsGoodAsASingleValue) {
  for (const double value : {1.0, -2.3, 1e9}) {
    const double values[] = {value, std::nextafter(value, INFINITY)};
    EXPECT_EQ(texts_of(Scale(Axis{}, values, 5, true)), texts_of(Scale(Axis{}, std::span(values, 1), 5, true))) << value;
  }
  const double apart[] = {1, 1 + 1e-8};
  EXPECT_GE(Scale(Axis{}, apart, 5, true).place(apart[1]), 0.5);
}

TEST(Chart, DrawsEverySeriesAndLeavesGaps) {
  Figure figure;
  figure.title = "a < b & c";
  Panel panel;
  panel.series = {{"line", {1, 2, 3, 4}, {1, NAN, 3, 4}}, {"dots", {1, 2}, {2, 3}, true}, {"guess", {1, 2}, {2, 2}, false, true}};
  figure.panels = {panel};
  const std::string svg = to_svg(figure);
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_EQ(count(svg, "<path"), 3u);
  EXPECT_EQ(count(svg, "<circle"), 2u);
  const auto path = svg.substr(svg.find("<path d=\""), svg.find("/>", svg.find("<path")) - svg.find("<path"));
  EXPECT_EQ(count(path, "M"), 2u) << path;        // before and after the gap
  EXPECT_EQ(count(svg, "stroke-dasharray"), 2u);  // the line and its sign in the legend
}

TEST(Chart, DrawsBarsFromZeroInGroups) {
  Panel panel{.title = "bars", .x = {}, .y = {.label = "flop/B"}, .series = {}, .groups = {"first", "second"}};
  panel.y.least = 0, panel.y.most = 10;
  panel.series = {{.name = "a", .x = {}, .y = {5, 10}}, {.name = "b", .x = {}, .y = {NAN, 2.5}}};
  panel.series.push_back({.name = "level", .x = {}, .y = {7.5}, .dashed = true});
  Figure figure{.title = "", .subtitle = "", .panels = {panel}, .panel_width = 400, .panel_height = 200};
  const std::string svg = to_svg(figure);
  EXPECT_EQ(count(svg, "<rect"), 1u + 2 + 3) << "the ground, two signs of the legend, three bars";
  for (const char* height : {"height=\"100.0\"", "height=\"200.0\"", "height=\"50.0\""}) EXPECT_EQ(count(svg, height), 1u) << height;
  EXPECT_EQ(count(svg, "<path"), 1u) << "the level";
  for (const char* name : {">first<", ">second<", ">flop/B<", ">level<"}) EXPECT_THAT(svg, HasSubstr(name));
}

TEST(Chart, PutsPanelsInRowsAndKeepsUnnamedSeriesOutOfTheLegend) {
  Panel panel;
  panel.series = {{.name = "solid", .x = {1, 2}, .y = {1, 2}}, {.name = "", .x = {1, 2}, .y = {2, 3}, .dashed = true, .color = 0}};
  Figure one, four;
  one.panels = {panel};
  four.panels = {panel, panel, panel, panel}, four.columns = 2;
  const std::string svg = to_svg(one);
  EXPECT_EQ(count(svg, "class=\"name\""), 1u);
  EXPECT_EQ(count(svg, "stroke=\"#3a7fc8\""), 3u) << "both lines, and the one sign of the legend";
  const auto height = [](const std::string& text) { return std::stoi(text.substr(text.find("height=\"") + 8)); };
  const auto width = [](const std::string& text) { return std::stoi(text.substr(text.find("width=\"") + 7)); };
  EXPECT_GT(height(to_svg(four)), 1.5 * height(svg));
  EXPECT_LT(width(to_svg(four)), 2.2 * width(svg));
}

TEST(ThinnedSeries, KeepsMeansOfALongRun) {
  ThinnedSeries thinned;
  const int n = 100000;
  for (int i = 0; i < n; ++i) thinned.add(i, 2.0 * i);
  const Series series = thinned.series("x");
  EXPECT_LE(series.x.size(), ThinnedSeries::kMostPoints);
  EXPECT_GT(series.x.size(), ThinnedSeries::kMostPoints / 2);
  for (std::size_t i = 0; i < series.x.size(); ++i) EXPECT_NEAR(series.y[i], 2 * series.x[i], 1e-6);
}

class CurveTest : public TempFolderTest {
 protected:
  VirtualClock clock;
};

TEST_F(CurveTest, IsWrittenAtEvaluationsAndAtTheEnd) {
  Curve curve(folder / "curve.svg", clock);
  RunStarted run;
  run.run = "runs/lenet-mnist";
  curve.on(run);
  for (int step = 1; step <= 4; ++step) {
    StepDone done;
    done.step = step, done.epoch = 1, done.epoch_step = step, done.epoch_steps = 4;
    done.loss = 2.0 / step;
    done.accuracy = 0.2 * step;
    curve.on(done);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "curve.svg"));
  curve.on(Evaluated{1, 4, 0.6, 0.7});
  const std::string svg = read_file(folder / "curve.svg");
  EXPECT_THAT(svg, HasSubstr("lenet-mnist"));
  EXPECT_THAT(svg, HasSubstr("best test accuracy 70.00% at epoch 1"));

  const Figure figure = curve.figure();
  ASSERT_EQ(figure.panels.size(), 2u);
  EXPECT_EQ(figure.panels[0].series[0].x, (std::vector<double>{0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(figure.panels[0].series[1].y, std::vector<double>{0.6});
  EXPECT_FALSE(figure.panels[0].y.log);

  std::filesystem::remove(folder / "curve.svg");
  curve.on(RunEnded{});
  EXPECT_TRUE(std::filesystem::exists(folder / "curve.svg"));
}

TEST_F(CurveTest, OfAResumedRunItHasWhatWasBefore) {
  const auto step = [](std::int64_t number) {
    StepDone done;
    done.step = number, done.epoch = (number + 1) / 2, done.epoch_step = 2 - number % 2, done.epoch_steps = 2, done.loss = 1;
    return done;
  };
  const auto metrics = folder / "metrics.jsonl";
  {
    MetricsLog log(metrics, clock);
    for (std::int64_t i : {1, 2}) log.on(step(i));
    log.on(Evaluated{1, 2, 0.6, 0.7});
  }
  RunStarted resumed;
  resumed.first_step = 2;
  const auto epochs_of = [](const Curve& curve, std::size_t series) { return curve.figure().panels[0].series[series].x; };
  Curve curve(folder / "curve.svg", clock, metrics), ignorant(folder / "other.svg", clock);
  for (Curve* drawn : {&curve, &ignorant}) {
    drawn->on(resumed);
    drawn->on(Evaluated{1, 2, 0.5, 0.8});  // made again
    drawn->on(step(3));
  }
  EXPECT_EQ(epochs_of(curve, 0), (std::vector<double>{0.5, 1, 1.5}));
  EXPECT_EQ(epochs_of(curve, 1), std::vector<double>{1});
  EXPECT_EQ(curve.figure().panels[0].series[1].y, std::vector<double>{0.5});
  EXPECT_EQ(epochs_of(ignorant, 0), std::vector<double>{1.5});
  EXPECT_EQ(epochs_of(ignorant, 1), std::vector<double>{1});
}

TEST_F(CurveTest, ARecordOfAnEarlierVersionHasItsEvaluations) {
  const auto metrics = folder / "metrics.jsonl";
  std::string record;
  for (int epoch = 1; epoch <= 3; ++epoch)
    record += fmt::format(R"({{"event":"step","step":{0},"epoch":{0},"loss":1.0,"accuracy":0.5}}
{{"event":"evaluation","step":{0},"epoch":{0},"test_loss":0.{0},"test_accuracy":null}}
)",
                          epoch);
  write_atomically(metrics, record);
  Curve curve(folder / "curve.svg", clock, metrics);
  RunStarted resumed;
  resumed.first_step = 3;
  curve.on(resumed);
  StepDone step;
  step.step = 4, step.epoch = 4, step.epoch_step = 1, step.epoch_steps = 1;
  curve.on(step);
  curve.on(Evaluated{4, 4, 0.4, 0.8});
  const std::vector<Series> series = curve.figure().panels[0].series;
  EXPECT_EQ(series[0].x, std::vector<double>{4});
  EXPECT_EQ(series[1].x, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(series[1].y, (std::vector<double>{0.1, 0.2, 0.3, 0.4}));
}

TEST_F(CurveTest, EpochsThatGrowShorterAreEpochs) {
  Curve curve(folder / "curve.svg", clock);
  curve.on(RunStarted{});
  std::int64_t step = 0;
  for (const std::int64_t epoch : {1, 2})
    for (std::int64_t i = 1, steps = 4 / epoch; i <= steps; ++i) {
      StepDone done;
      done.step = ++step, done.epoch = epoch, done.epoch_step = i, done.epoch_steps = steps;
      curve.on(done);
    }
  EXPECT_EQ(curve.figure().panels[0].series[0].x, (std::vector<double>{0.25, 0.5, 0.75, 1, 1.5, 2}));
}

TEST_F(CurveTest, ALossOverDecadesGetsALogAxisAndALanguageModelNoAccuracy) {
  Curve curve(folder / "curve.svg", clock);
  RunStarted run;
  run.per_token = true;
  curve.on(run);
  for (int step = 1; step <= 4; ++step) {
    StepDone done;
    done.step = step, done.epoch = 1, done.epoch_step = step, done.epoch_steps = 4;
    done.loss = std::pow(10, -step);
    curve.on(done);
  }
  const Figure figure = curve.figure();
  ASSERT_EQ(figure.panels.size(), 1u);
  EXPECT_TRUE(figure.panels[0].y.log);
}

class RunFolderTest : public TempFolderTest {};

TEST_F(RunFolderTest, ANameIsUsedOnce) {
  const auto runs = folder / "deep/runs";
  EXPECT_EQ(RunFolder::create(runs, "a").path(), runs / "a");
  EXPECT_EQ(RunFolder::create(runs, "a").path(), runs / "a-2");
  EXPECT_EQ(RunFolder::create(runs, "a").path(), runs / "a-3");
  EXPECT_EQ(RunFolder::open(runs / "a-2").metrics(), runs / "a-2/metrics.jsonl");
}

TEST_F(RunFolderTest, AJobFindsItsRun) {
  const RunFolder first = RunFolder::create(folder, "a"), second = RunFolder::create(folder, "b");
  first.mark("one"), second.mark("two");
  EXPECT_EQ(RunFolder::find(folder, "two")->path(), second.path());
  EXPECT_TRUE(first.is_of("one"));
  EXPECT_FALSE(first.is_of(""));
  RunFolder::forget(folder, "one");
  EXPECT_FALSE(RunFolder::find(folder, "one"));
  EXPECT_TRUE(RunFolder::find(folder, "two"));
}

TEST_F(RunFolderTest, CountsItsSteps) {
  const RunFolder run = RunFolder::create(folder, "a");
  EXPECT_EQ(StepCount::read(run.path()), 0);
  const StepCount count(run.path());
  for (const std::int64_t steps : {1000, 7}) {
    count.set(steps);
    EXPECT_EQ(StepCount::read(run.path()), steps);
    EXPECT_EQ(StepCount::read(run.path()), steps);
  }
  StepCount(folder / "nowhere").set(1);
  EXPECT_EQ(StepCount::read(folder / "nowhere"), 0);
}

TEST_F(RunFolderTest, EveryPartOfARunHasATraceOfItsOwn) {
  const RunFolder run = RunFolder::create(folder, "a");
  for (const char* name : {"trace.json", "trace-2.json", "trace-3.json"}) {
    EXPECT_EQ(run.new_trace(), run.path() / name);
    write_atomically(run.new_trace(), "x");
  }
}

TEST_F(RunFolderTest, HasOneWriterAtATime) {
  const RunFolder run = RunFolder::create(folder, "a");
  {
    const RunLock lock(run);
    try {
      const RunLock second(RunFolder::open(run.path()));
      ADD_FAILURE() << "two hold it";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.what(), fmt::format("{}: another process (pid {}) is training there; stop it first, or wait until it ends",
                                          run.path().string(), ::getpid()));
    }
    EXPECT_NO_THROW(RunLock(RunFolder::create(folder, "a")));  // a-2
    int found = 0;
    for (const auto& open : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(open, gone) != run.path() / ".lock") continue;
      ++found;
      EXPECT_TRUE(::fcntl(std::stoi(open.path().filename()), F_GETFD) & FD_CLOEXEC);  // a program that is started must not keep it
    }
    EXPECT_EQ(found, 1);
  }
  EXPECT_NO_THROW(RunLock{run});
}

TEST_F(RunFolderTest, PlacesThatCannotBeAreRefused) {
  EXPECT_THROW(RunFolder::create("/proc/runs", "a"), ConfigError);
  EXPECT_THROW(RunFolder::create(folder, ""), ConfigError);
  EXPECT_THROW(RunFolder::create(folder, "../a"), ConfigError);
  EXPECT_THROW(RunFolder::open(folder / "none"), ConfigError);
  write_atomically(folder / "file", "x");
  EXPECT_THROW(RunFolder::create(folder / "file", "a"), ConfigError);
}

TEST_F(RunFolderTest, TheDefaultNameSaysWhatAndWhen) {
  const std::string name = RunFolder::default_name("resnet18", "my data/set", 1700000000);
  EXPECT_THAT(name, testing::MatchesRegex("resnet18-my-data-set-202311[0-9][0-9]-[0-9]{6}"));
}

}  // namespace
}  // namespace paceline::observe
