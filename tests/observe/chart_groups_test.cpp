// The names of many groups of bars: none lies over another one or outside of the figure.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "paceline/observe/chart.h"

namespace paceline::observe {
namespace {

constexpr double kNarrow = 5.5;  // pixels of a character of a tick's text, at least

/// The middles of all groups' names, by their baseline.
std::map<double, std::vector<double>> middles_of(const std::string& svg, const std::string& name) {
  const std::regex text("<text x=\"([0-9.]+)\" y=\"([0-9.]+)\" class=\"tick\" text-anchor=\"middle\">" + name);
  std::map<double, std::vector<double>> middles;
  for (auto match = std::sregex_iterator(svg.begin(), svg.end(), text); match != std::sregex_iterator(); ++match)
    middles[std::stod((*match)[2])].push_back(std::stod((*match)[1]));
  return middles;
}

double number_after(const std::string& text, const std::string& word) { return std::stod(text.substr(text.find(word) + word.size())); }

TEST(Chart, NamesOfManyGroupsDoNotOverlap) {
  const std::string name = "inception_v3_torchvision";
  const double wide = kNarrow * static_cast<double>(name.size());
  for (const int groups : {1, 2, 8, 20}) {
    Panel panel{.title = "bars", .x = {}, .y = {}, .series = {}};
    panel.groups.assign(static_cast<std::size_t>(groups), name);
    panel.series = {{.name = "a", .x = {}, .y = std::vector<double>(static_cast<std::size_t>(groups), 1)}};
    const Figure figure{.title = "", .subtitle = "", .panels = {panel}, .panel_width = 400, .panel_height = 200};
    const std::string svg = to_svg(figure);
    std::size_t seen = 0;
    for (const auto& [baseline, middles] : middles_of(svg, name)) {
      EXPECT_LT(baseline, number_after(svg, "height=\""));
      for (std::size_t i = 0; i < middles.size(); ++i) {
        ++seen;
        EXPECT_GE(middles[i] - wide / 2, 0);
        EXPECT_LE(middles[i] + wide / 2, number_after(svg, "width=\""));
        if (i == 0) continue;
        EXPECT_GE(middles[i] - middles[i - 1], wide) << groups << " groups";
      }
    }
    EXPECT_EQ(seen, panel.groups.size());
  }
}

}  // namespace
}  // namespace paceline::observe
