#include "paceline/observe/chart.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/observe/chart_axis.h"
#include "paceline/observe/formatting.h"

namespace paceline::observe {
namespace {

// Pixels. Text cannot be measured here, so a character counts for kCharacter at the size of the legend.
constexpr int kMargin = 28, kLeft = 58, kBottom = 52, kPanelHead = 52, kBetween = 36, kBetweenRows = 14;
constexpr int kTicksX = 8, kTicksY = 5, kSwatch = 22, kGroupRows = 3;  // of groups' names: as many fit into kBottom
constexpr double kCharacter = 6.7, kLegendRow = 18, kGroupRow = 14;

constexpr const char* kColors[] = {"#3a7fc8", "#e0803a", "#3b9e74", "#a35db5", "#c2a02b", "#d0566a"};

// `sub` and `label` look as any text does.
constexpr std::string_view kStyle = R"(<style>
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:12px;fill:#59616b}
.ground{fill:#ffffff}.title{font-size:17px;font-weight:600;fill:#1c2026}.head{font-size:13px;font-weight:600;fill:#1c2026}
.name{fill:#343a42}.tick{font-size:11px}.grid{stroke:#e6e8ec}.axis{stroke:#a9b0b9}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}.dot{stroke:#ffffff;stroke-width:1.2}
@media (prefers-color-scheme:dark){
text{fill:#9aa3ae}.ground{fill:#16191e}.title,.head{fill:#eceff3}.name{fill:#cbd1d9}.grid{stroke:#2b3038}.axis{stroke:#5a636e}.dot{stroke:#16191e}}
</style>
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML has no control characters
    }
  }
  return out;
}

std::string text_at(double x, double y, std::string_view style, std::string_view text, std::string_view anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, style, anchor, escaped(text));
}

std::string line_between(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x1, y1, x2, y2, style);
}

std::size_t place_of(const Series& series, std::size_t index) { return series.color < 0 ? index : static_cast<std::size_t>(series.color); }
std::string color_of(std::size_t index) { return kColors[index % std::size(kColors)]; }
/// Once the colours are used up they repeat, dotted.
std::string dash_of(const Series& series, std::size_t index) {
  if (series.dashed) return " stroke-dasharray=\"6 5\"";
  return index < std::size(kColors) ? "" : " stroke-dasharray=\"1 5\"";
}

/// Where a name of the legend begins, or a group's has its middle: in which row, and how far from the left.
struct Place {
  int row;
  double x;
};

/// Names side by side, in as many rows as they need.
std::vector<Place> legend_places(const Panel& panel, double width) {
  std::vector<Place> places;
  Place next{0, 0};
  for (const Series& series : panel.series) {
    if (series.name.empty()) {
      places.push_back(next);
      continue;
    }
    const double needed = kSwatch + kCharacter * columns(series.name) + 16;
    if (next.x > 0 && next.x + needed - 16 > width) next = {next.row + 1, 0};
    places.push_back(next);
    next.x += needed;
  }
  return places;
}

/// Names of groups: in the middle of their bars, but inside the figure, in as many rows as they need.
std::vector<Place> group_places(const std::vector<std::string>& names, double width) {
  std::vector<Place> places;
  std::vector<double> ends;  // by row
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double half = kCharacter * columns(names[i]) / 2;
    const double middle = width / static_cast<double>(names.size()) * (static_cast<double>(i) + 0.5);
    const double x = std::max(std::min(middle, width + kMargin - half), half - kLeft);
    std::size_t row = 0;
    while (row < ends.size() && x - half < ends[row]) ++row;
    if (row == ends.size()) ends.push_back(0);
    ends[row] = x + half;
    places.push_back({static_cast<int>(row), x});
  }
  return places;
}

int group_rows(const Panel& panel, double width) {
  int rows = 1;
  for (const Place& place : group_places(panel.groups, width)) rows = std::max(rows, place.row + 1);
  return rows;
}

int legend_rows(const Panel& panel, double width) {
  const std::vector<Place> places = legend_places(panel, width);
  return places.empty() ? 1 : places.back().row + 1;
}

bool is_bars(const Panel& panel, const Series& series) { return !panel.groups.empty() && !series.dashed; }

/// One panel; (left, top) is the corner of its plotted area.
class PanelDrawing {
 public:
  PanelDrawing(const Panel& panel, double left, double top, double width, double height)
      : panel_(panel),
        left_(left),
        top_(top),
        width_(width),
        height_(height),
        x_(panel.x, gather(&Series::x), kTicksX, false),
        y_(panel.y, gather(&Series::y), kTicksY, true),
        places_(legend_places(panel, width)),
        rows_(legend_rows(panel, width)) {}

  std::string draw() const {
    std::string out = text_at(left_, top_ - 34 - kLegendRow * (rows_ - 1), "head", panel_.title) + legend() + axes();
    for (std::size_t i = 0; i < panel_.series.size(); ++i) {
      if (panel_.groups.empty()) out += curve(i);
      else out += is_bars(panel_, panel_.series[i]) ? bars(i) : level(i);
    }
    return out;
  }

 private:
  std::vector<double> gather(std::vector<double> Series::*member) const {
    std::vector<double> all;
    for (const Series& series : panel_.series) all.insert(all.end(), (series.*member).begin(), (series.*member).end());
    return all;
  }

  std::string legend() const {
    std::string out;
    for (std::size_t i = 0; i < panel_.series.size(); ++i) {
      const Series& series = panel_.series[i];
      if (series.name.empty()) continue;
      const Place place = places_[i];
      const double x = left_ + place.x, y = top_ - 18 - kLegendRow * (rows_ - 1 - place.row);
      const std::string color = color_of(place_of(series, i));
      if (is_bars(panel_, series))
        out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"11\" fill=\"{}\"/>\n", x, y - 6, kSwatch - 8, color);
      else
        out += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"line\" stroke=\"{}\"{}/>\n", x, y,
                           x + kSwatch - 6, y, color, dash_of(series, place_of(series, i)));
      out += text_at(x + kSwatch, y + 4, "name", series.name);
    }
    return out;
  }

  std::string axes() const {
    const double bottom = top_ + height_;
    std::string out;
    for (const Scale::Tick& tick : y_.ticks()) {
      const double y = bottom - height_ * tick.place;
      out += line_between(left_, y, left_ + width_, y, "grid") + text_at(left_ - 8, y + 4, "tick", tick.text, "end");
    }
    out += line_between(left_, bottom, left_ + width_, bottom, "axis");
    const std::vector<Place> places = group_places(panel_.groups, width_);
    for (std::size_t i = 0; i < places.size(); ++i)
      out += text_at(left_ + places[i].x, bottom + 18 + kGroupRow * places[i].row, "tick", panel_.groups[i], "middle");
    for (const Scale::Tick& tick : x_.ticks()) {
      if (!panel_.groups.empty()) break;
      const double x = left_ + width_ * tick.place;
      out += line_between(x, bottom, x, bottom + 4, "axis") + text_at(x, bottom + 18, "tick", tick.text, "middle");
    }
    out += text_at(left_ + width_ / 2, bottom + 38, "label", panel_.x.label, "middle");
    if (!panel_.y.label.empty())
      out += fmt::format("<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n", left_ - 44,
                         top_ + height_ / 2, escaped(panel_.y.label));
    return out;
  }

  double group_width() const { return width_ / static_cast<double>(panel_.groups.size()); }
  double height_of(double value) const { return height_ * std::clamp(y_.place(value), 0.0, 1.0); }

  std::string bars(std::size_t index) const {
    const Series& series = panel_.series[index];
    const auto is_one = [&](const Series& other) { return is_bars(panel_, other); };
    const auto before = std::ranges::count_if(panel_.series.begin(), panel_.series.begin() + static_cast<std::ptrdiff_t>(index), is_one);
    const double wide = 0.76 * group_width() / static_cast<double>(std::ranges::count_if(panel_.series, is_one));
    std::string out;
    for (std::size_t i = 0; i < std::min(series.y.size(), panel_.groups.size()); ++i) {
      if (!y_.holds(series.y[i])) continue;
      const double x = left_ + group_width() * (static_cast<double>(i) + 0.12) + wide * static_cast<double>(before),
                   tall = height_of(series.y[i]);
      out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x, top_ + height_ - tall,
                         std::max(1.0, wide - 2), tall, color_of(place_of(series, index)));
    }
    return out;
  }

  std::string level(std::size_t index) const {
    const Series& series = panel_.series[index];
    if (series.y.empty() || !y_.holds(series.y[0])) return {};
    const double y = top_ + height_ - height_of(series.y[0]);
    return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" class=\"line\" stroke=\"{}\"{}/>\n", left_, y, left_ + width_, y,
                       color_of(place_of(series, index)), dash_of(series, place_of(series, index)));
  }

  std::string curve(std::size_t index) const {
    const Series& series = panel_.series[index];
    std::string path, dots;
    bool joined = false;
    const std::size_t points = std::min(series.x.size(), series.y.size());
    for (std::size_t i = 0; i < points; ++i) {
      if (!x_.holds(series.x[i]) || !y_.holds(series.y[i])) {
        joined = false;
        continue;
      }
      const double x = left_ + width_ * x_.place(series.x[i]);
      // A bound set by the caller may leave values beyond it; they are drawn along the border.
      const double y = top_ + height_ * (1 - std::clamp(y_.place(series.y[i]), 0.0, 1.0));
      path += fmt::format("{}{:.1f} {:.1f}", joined ? "L" : "M", x, y);
      if (series.markers || points == 1)
        dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.2\" class=\"dot\" fill=\"{}\"/>\n", x, y,
                            color_of(place_of(series, index)));
      joined = true;
    }
    if (path.empty()) return {};
    return fmt::format("<path d=\"{}\" class=\"line\" stroke=\"{}\"{}/>\n{}", path, color_of(place_of(series, index)),
                       dash_of(series, place_of(series, index)), dots);
  }

  const Panel& panel_;
  double left_, top_, width_, height_;
  Scale x_, y_;
  std::vector<Place> places_;  // of the legend's names
  int rows_ = 1;
};

}  // namespace

std::string to_svg(const Figure& figure) {
  const int count = std::max<int>(1, static_cast<int>(figure.panels.size()));
  const int across = figure.columns > 0 ? std::min(figure.columns, count) : count, down = (count + across - 1) / across;
  int rows = 1, names = kGroupRows;
  for (const Panel& panel : figure.panels) {
    rows = std::max(rows, legend_rows(panel, figure.panel_width));
    names = std::max(names, group_rows(panel, figure.panel_width));
  }
  const int legend = static_cast<int>(kLegendRow) * (rows - 1);
  const int head = kMargin + 20 + (figure.subtitle.empty() ? 0 : 22) + 18;
  const int below = kBottom + static_cast<int>(kGroupRow) * (names - kGroupRows);
  const int row_height = legend + kPanelHead + figure.panel_height + below;
  const int width = 2 * kMargin + across * (kLeft + figure.panel_width) + (across - 1) * kBetween;
  const int height = head + down * row_height + (down - 1) * kBetweenRows + kMargin / 2;

  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n", width, height);
  out += fmt::format("<title>{}</title>\n", escaped(figure.title));
  out += kStyle;
  out += fmt::format("<rect width=\"{}\" height=\"{}\" class=\"ground\"/>\n", width, height);
  out += text_at(kMargin, kMargin + 12, "title", figure.title);
  if (!figure.subtitle.empty()) out += text_at(kMargin, kMargin + 34, "sub", figure.subtitle);
  for (int i = 0; i < static_cast<int>(figure.panels.size()); ++i) {
    const int left = kMargin + kLeft + i % across * (kLeft + figure.panel_width + kBetween);
    const int top = head + i / across * (row_height + kBetweenRows) + legend + kPanelHead;
    out += PanelDrawing(figure.panels[static_cast<std::size_t>(i)], left, top, figure.panel_width, figure.panel_height).draw();
  }
  return out + "</svg>\n";
}

}  // namespace paceline::observe
