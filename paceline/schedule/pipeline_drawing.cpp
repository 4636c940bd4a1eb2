#include "paceline/schedule/pipeline_drawing.h"

#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/text.h"
#include "paceline/schedule/pipeline_play.h"

namespace paceline::schedule {
namespace {

constexpr int kMostBoxes = 2048;
constexpr double kMargin = 24, kLeft = 92, kRow = 34, kBox = 26, kTop = 108, kLeastBox = 26;

// Chunks after the first are lighter, so that interleaving is visible.
constexpr const char* kStyle = R"(<style>
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:12px;fill:#59616b}
.ground{fill:#ffffff}.title{font-size:17px;font-weight:600;fill:#1c2026}.name{fill:#343a42}.idle{fill:#eef0f3}
.forward{fill:#3a7fc8}.backward,.backward_input{fill:#3b9e74}.weight_gradients{fill:#e0803a}.number{fill:#ffffff;font-size:11px}
@media (prefers-color-scheme:dark){
text{fill:#9aa3ae}.ground{fill:#16191e}.title{fill:#eceff3}.name{fill:#cbd1d9}.idle{fill:#23282f}}
</style>
)";

std::string text_at(double x, double y, std::string_view style, std::string_view text, std::string_view anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, style, anchor, text);
}

std::string box(double x, double y, double width, std::string_view style, double opacity = 1) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\" class=\"{}\" fill-opacity=\"{:.2f}\"/>\n", x,
                     y, width, kBox, style, opacity);
}

std::string legend(bool splits) {
  std::string out;
  double x = kMargin;
  const auto explain = [&](std::string_view style, std::string_view text, double width) {
    out += box(x, kMargin + 42, 26, style) + text_at(x + 34, kMargin + 60, "name", text);
    x += width;
  };
  explain("forward", "forward", 104);
  explain("backward", splits ? "input gradients" : "backward", splits ? 146 : 116);
  if (splits) explain("weight_gradients", "weight gradients", 152);
  explain("idle", "idle", 0);
  return out;
}

}  // namespace

std::string pipeline_drawing(const Entry<PipelineSchedule>& schedule, const PipelineProblem& problem, const PipelineCosts& costs,
                             double transfer) {
  check(schedule, problem);
  if (problem.stages > kMostBoxes || problem.micro_batches > kMostBoxes || problem.chunks > kMostBoxes ||
      std::int64_t{problem.virtual_stages()} * problem.micro_batches > kMostBoxes)
    throw ConfigError(
        fmt::format("a picture of {} stages, {} micro-batches and {} chunks would be unreadable; their product must be at most {}",
                    problem.stages, problem.micro_batches, problem.chunks, kMostBoxes));
  const PipelinePlay play = schedule::play(schedule, problem, costs, transfer);
  double shortest = play.makespan;
  bool splits = false;
  for (const auto& rank : play.ranks)
    for (const TimedStep& timed : rank) {
      shortest = std::min(shortest, timed.end - timed.begin);
      splits = splits || timed.step.kind == PipelineStep::Kind::weight_gradients;
    }
  const double scale = kLeastBox / shortest;
  const double width = std::max(480.0, kLeft + play.makespan * scale + kMargin), height = kTop + problem.stages * kRow + kMargin;
  const std::string title = fmt::format("{}: {} stages, {} micro-batches", schedule.key, problem.stages, problem.micro_batches);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" role=\"img\">\n",
      width, height);
  out += fmt::format("<title>{}</title>\n{}<rect width=\"{:.0f}\" height=\"{:.0f}\" class=\"ground\"/>\n", title, kStyle, width, height);
  out += text_at(kMargin, kMargin + 10, "title", title);
  out += text_at(kMargin, kMargin + 32, "sub",
                 fmt::format("{:.1f}% of the time is bubble; at most {} micro-batches in flight on a rank", 100 * play.bubble,
                             std::ranges::max(play.in_flight)));
  out += legend(splits);
  for (std::size_t rank = 0; rank < play.ranks.size(); ++rank) {
    const double y = kTop + static_cast<double>(rank) * kRow;
    out += text_at(kMargin, y + 18, "name", fmt::format("stage {}", rank)) + box(kLeft, y, play.makespan * scale, "idle");
    for (const TimedStep& timed : play.ranks[rank]) {
      const double x = kLeft + timed.begin * scale, w = (timed.end - timed.begin) * scale;
      const double opacity = 1 - 0.45 * timed.step.chunk / std::max(1, problem.chunks - 1);
      out += box(x + 0.5, y, w - 1, name_of(timed.step.kind), problem.chunks > 1 ? opacity : 1);
      out += text_at(x + w / 2, y + 17, "number", fmt::format("{}", timed.step.micro_batch), "middle");
    }
  }
  return out + "</svg>\n";
}

}  // namespace paceline::schedule
