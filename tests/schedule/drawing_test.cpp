// What a picture shows, read back from its SVG.
#include "paceline/schedule/drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/schedule/player.h"

namespace paceline::schedule {
namespace {

using testing::HasSubstr;
using testing::Not;

int occurrences(const std::string& text, std::string_view word) {
  int found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

int messages(std::string_view key, const Problem& problem) {
  int sent = 0;
  for (const Steps& steps : all_steps(algorithm_for(key, problem.collective).make, problem))
    for (const Step& step : steps) sent += step.kind == Step::Kind::send || step.kind == Step::Kind::give;
  return sent;
}

/// The legend is made of short arrows and bars of another width.
constexpr std::string_view kBar = "width=\"66.0\" height=\"12\" class=\"bar\"",
                           kFullBar = "width=\"66.0\" height=\"12\" class=\"held\" fill-opacity=\"1.00\"";

TEST(Drawing, HasAnArrowForEveryMessageOfEveryAlgorithm) {
  for (const auto& row : algorithms())
    for (const Collective collective : row.make.offers)
      for (const int size : {1, 2, 3, 5, 8}) {
        const Problem problem{
            .collective = collective, .rank = 0, .size = size, .count = 120, .root = size - 1, .per_host = 2, .chunks = 3};
        const std::string svg = drawing(row.key, problem);
        const std::string what = std::string(row.key) + " " + describe(problem);
        // Two marks an arrow: the part it carries at its sender, and at its receiver.
        EXPECT_EQ(occurrences(svg, " out\"/>"), 2 * messages(row.key, problem)) << what;
        const int rounds = row.make.formula(problem).rounds;
        EXPECT_EQ(occurrences(svg, kBar), size * (rounds + 1)) << what;
        EXPECT_EQ(occurrences(svg, ">round "), rounds) << what;
      }
}

// The shades are computed by following the messages, so a full last row says that the algorithm is right.
TEST(Drawing, EndsWithFullBuffersWhereEverybodyGetsEverything) {
  for (const auto& row : algorithms())
    for (const Collective collective : row.make.offers) {
      if (collective == Collective::reduce_scatter || collective == Collective::reduce) continue;
      const std::string svg = drawing(row.key, {.collective = collective, .size = 6, .count = 24, .per_host = 3});
      const std::string last_bar = svg.substr(svg.rfind("<rect x"));
      const std::string y = last_bar.substr(last_bar.find("y=\""), last_bar.find("width") - last_bar.find("y=\""));
      EXPECT_EQ(occurrences(svg, y + std::string(kFullBar)), 6) << row.key << ' ' << name_of(collective);
    }
}

struct Line {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
};

/// The lines of a class.
std::vector<Line> lines(const std::string& svg, const std::string& style) {
  std::vector<Line> found;
  for (std::size_t at = svg.find("<path d=\"M"); at != std::string::npos; at = svg.find("<path d=\"M", at + 1)) {
    const std::string element = svg.substr(at, svg.find("/>", at) - at);
    Line line;
    if (element.ends_with("class=\"" + style + "\"") &&
        std::sscanf(element.c_str(), "<path d=\"M%lf %lfL%lf %lf", &line.x1, &line.y1, &line.x2, &line.y2) == 4)
      found.push_back(line);
  }
  return found;
}

// Rank 0 sends the second half of its buffer to rank 1, which adds it to its own second half.
TEST(Drawing, ArrowsLeaveThePartThatTheyCarry) {
  const std::string svg = drawing("ring", {.collective = Collective::reduce_scatter, .size = 2, .count = 10});
  const std::vector<Line> arrows = lines(svg, "added"), marks = lines(svg, "added out");
  ASSERT_EQ(arrows.size(), 3u);  // the legend's, then what comes to rank 0 and what comes to rank 1
  ASSERT_EQ(marks.size(), 4u);   // of each the part that leaves, and the part that it comes to
  for (std::size_t i = 0; i < 2; ++i) {
    const Line &arrow = arrows[i + 1], &leaves = marks[2 * i], &comes = marks[2 * i + 1];
    EXPECT_NEAR(arrow.x1, (leaves.x1 + leaves.x2) / 2, 0.1);
    EXPECT_NEAR(arrow.x2, (comes.x1 + comes.x2) / 2, 0.1);
    EXPECT_LT(arrow.y1, arrow.y2);
  }
  const double half = marks[2].x2 - marks[2].x1;
  EXPECT_NEAR(marks[2].x1, marks[1].x1 + half, 2.1) << "rank 0's second half begins where its first ends";
  EXPECT_NEAR(marks[3].x1, marks[0].x1 + half, 2.1) << "and rank 1's";
}

TEST(Drawing, TellsReducingFromReplacing) {
  const std::string broadcast = drawing("tree", {.collective = Collective::broadcast, .size = 4, .count = 4});
  EXPECT_THAT(broadcast, Not(HasSubstr("class=\"added\"")));
  EXPECT_THAT(broadcast, HasSubstr("class=\"placed\""));
  EXPECT_THAT(drawing("recursive_doubling", {.size = 4, .count = 4}), Not(HasSubstr("class=\"placed\"")));
  EXPECT_EQ(occurrences(drawing("tree", {.collective = Collective::reduce, .size = 4, .count = 4}), "class=\"added\""), 1 + 3);
}

TEST(Drawing, ShowsHostsWhereThereAreSeveral) {
  EXPECT_EQ(occurrences(drawing("hierarchical", {.size = 8, .count = 8, .per_host = 3}), "class=\"host\""), 3);
  EXPECT_EQ(occurrences(drawing("hierarchical", {.size = 8, .count = 8, .per_host = 8}), "class=\"host\""), 0);
  EXPECT_EQ(occurrences(drawing("ring", {.size = 8, .count = 8}), "class=\"host\""), 0);
}

TEST(Drawing, StandsAloneAndLooksAtNoRank) {
  const Problem problem{.size = 5, .count = 20};
  const std::string svg = drawing("butterfly", problem);
  Problem other = problem;
  other.rank = 3;
  EXPECT_EQ(svg, drawing("butterfly", other));
  EXPECT_EQ(occurrences(svg, "http"), 1);  // the name of SVG itself
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
}

TEST(Drawing, RefusesWhatCannotBeDrawn) {
  const auto refusal = [](std::string_view key, const Problem& problem) -> std::string {
    try {
      drawing(key, problem);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal("rign", {.size = 4, .count = 4}), HasSubstr("did you mean 'ring'?"));
  EXPECT_THAT(refusal("butterfly", {.collective = Collective::broadcast, .size = 4, .count = 4}), HasSubstr("does not offer broadcast"));
  EXPECT_THAT(refusal("ring", {.size = 65, .count = 65}), HasSubstr("4096"));
  EXPECT_THAT(refusal("ring", {.size = 8, .count = 1 << 20, .chunks = 1 << 20}), HasSubstr("4096"));
  EXPECT_THAT(refusal("ring", {.size = 0, .count = 4}), HasSubstr("at least one rank"));
  EXPECT_THAT(refusal("ring", {.size = 4, .count = -1}), HasSubstr("-1 elements"));
  EXPECT_THAT(refusal("direct", {.collective = Collective::all_to_all, .size = 4, .count = 6}), HasSubstr("equal parts"));
  EXPECT_THAT(refusal("ring", {.size = 4, .count = 0}), "");  // nothing moves, but it can be drawn
}

}  // namespace
}  // namespace paceline::schedule
