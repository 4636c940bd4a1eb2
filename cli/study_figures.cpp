// The figures of a study, and the page that shows them.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "paceline/observe/chart.h"
#include "study_report.h"

namespace paceline::cli {
namespace {

using observe::Axis;
using observe::Figure;
using observe::Panel;
using observe::Series;
using perf::Method;
using perf::Topology;

constexpr double kMs = 1e3;
constexpr double kUnfused = 0.1;  // on a logarithmic axis in MB: where layers that are reduced one by one are drawn
constexpr const char* kSolidAndDashed = " · solid: allreduce during the backward pass; dashed: after it";

/// How a sweep is drawn.
struct SweepLook {
  std::string_view sweep;
  const char *title, *label, *caption;
  double scale;  // of the swept value on the axis
  bool log_y;
};
constexpr SweepLook kLooks[] = {
    {"batch", "Step time by batch size", "samples per process",
     "Communication does not depend on the batch size: the fewer samples, the more of a step it is.", 1, true},
    {"flops", "Step time by processor speed", "processor, Gflop/s",
     "Once most products are memory-bound, a faster processor alone changes little.", 1e-9, false},
    {"memory_bandwidth", "Step time by memory bandwidth", "memory bandwidth, GB/s", "Faster memory helps until the processor is the limit.",
     1e-9, false},
    {"processes", "Step time by number of processes", "processes",
     "The batch of a process stays the same. BKT on a star pays 2Pα for every layer; a mesh pays for its sides only.", 1, false},
    {"link_bandwidth", "Step time by link bandwidth", "link bandwidth, Gb/s", "MST sends the whole gradient 2⌈log₂P⌉ times, BKT twice.",
     8e-9, true},
};

std::string setting(const perf::Study& study) {
  const perf::Cluster& cluster = study.options.cluster;
  return fmt::format("{}; where not swept {} processes, {} samples each, {:.6g} Gflop/s, {:.6g} GB/s, {:.6g} Gb/s", cluster.name,
                     cluster.processes(), study.options.batch, cluster.device.flops.value / 1e9,
                     cluster.device.memory_bandwidth.value / 1e9,
                     perf::interconnect_of(cluster, Topology::star, cluster.processes()).bytes_per_s * 8 / 1e9);
}

void add_point(Series& overlapped, Series& sequential, double x, const perf::StepTime& time) {
  for (Series* series : {&overlapped, &sequential}) series->x.push_back(x);
  overlapped.y.push_back(time.overlapped * kMs);
  sequential.y.push_back(time.sequential() * kMs);
}

/// The curves of one network: a colour for each topology and method, solid with overlap and dashed without.
Panel sweep_panel(const perf::Study& study, const std::string& network, const SweepLook& look) {
  Panel panel{.title = perf::title_of(network),
              .x = {.label = look.label, .log = true},
              .y = {.label = "step, ms", .log = look.log_y},
              .series = {}};
  if (!look.log_y) panel.y.least = 0;
  int color = 0;
  for (const Topology topology : study.topologies)
    for (const Method method : perf::kMethods) {
      Series overlapped{
          .name = fmt::format("{} {}", name_of(topology), name_of(method)), .x = {}, .y = {}, .markers = true, .color = color};
      Series sequential{.name = {}, .x = {}, .y = {}, .dashed = true, .color = color++};
      for (const perf::StepRow& row : study.steps) {
        if (row.sweep != look.sweep || row.network != network || row.topology != topology || row.method != method) continue;
        add_point(overlapped, sequential, row.swept() * look.scale, row.time);
      }
      panel.series.push_back(std::move(sequential));
      panel.series.push_back(std::move(overlapped));
    }
  return panel;
}

StudyFigure sweep_figure(const perf::Study& study, const SweepLook& look) {
  Figure figure{.title = look.title, .subtitle = setting(study) + kSolidAndDashed, .panels = {}};
  figure.columns = 2;
  for (const std::string& network : study.options.networks) figure.panels.push_back(sweep_panel(study, network, look));
  return {std::string(look.sweep), look.caption, observe::to_svg(figure)};
}

Panel intensity_panel(const perf::Study& study, std::int64_t batch, perf::OutputTraffic traffic, double perf::Intensity::*which) {
  Panel panel{.title = fmt::format("{} samples per process, output counted {}", batch,
                                   traffic == perf::OutputTraffic::once ? "once (mn)" : "twice (2mn)"),
              .x = {},
              .y = {.label = "flop/B"},
              .series = {}};
  panel.y.least = 0;
  for (const std::string& network : study.options.networks) panel.groups.push_back(perf::title_of(network));
  for (const perf::Phase phase : perf::kPhases) {
    Series bars{.name = std::string(name_of(phase)), .x = {}, .y = {}};
    for (const perf::IntensityRow& row : study.intensities)
      if (row.batch == batch && row.traffic == traffic && row.phase == phase) bars.y.push_back(row.value.*which);
    panel.series.push_back(std::move(bars));
  }
  panel.series.push_back(
      {.name = fmt::format("ridge, {:.3g} flop/B", study.ridge), .x = {}, .y = {study.ridge}, .dashed = true, .color = 5});
  return panel;
}

StudyFigure intensity_figure(const perf::Study& study, const std::string& name, double perf::Intensity::*which, const char* title,
                             const char* caption) {
  Figure figure{
      .title = title,
      .subtitle = "FP: forward, GC: gradient of the input, WU: gradient of the weights; above the ridge the processor is the limit",
      .panels = {}};
  figure.columns = 2;
  for (const perf::OutputTraffic traffic : {perf::OutputTraffic::once, perf::OutputTraffic::twice})
    for (const std::int64_t batch : {10, 60}) figure.panels.push_back(intensity_panel(study, batch, traffic, which));
  return {name, caption, observe::to_svg(figure)};
}

StudyFigure fusion_figure(const perf::Study& study) {
  Figure figure{.title = "Step time by fusion of gradients", .subtitle = setting(study) + ", star" + kSolidAndDashed, .panels = {}};
  figure.columns = 2;
  for (const std::string& network : study.options.networks) {
    Panel panel{.title = perf::title_of(network),
                .x = {.label = "gradients that are reduced together, MB (0.1: each layer alone)", .log = true},
                .y = {.label = "step, ms"},
                .series = {}};
    panel.y.least = 0;
    int color = 0;
    for (const Method method : perf::kMethods) {
      Series overlapped{.name = std::string(name_of(method)), .x = {}, .y = {}, .markers = true, .color = color};
      Series sequential{.name = {}, .x = {}, .y = {}, .dashed = true, .color = color++};
      for (const perf::FusionRow& row : study.fusions)
        if (row.network == network && row.method == method)
          add_point(overlapped, sequential, std::max(kUnfused, static_cast<double>(row.bytes) / 1e6), row.time);
      panel.series.push_back(std::move(sequential));
      panel.series.push_back(std::move(overlapped));
    }
    figure.panels.push_back(std::move(panel));
  }
  return {"fusion", "Few large allreduces pay less latency, but the last one begins later.", observe::to_svg(figure)};
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

std::string html_row(const std::vector<std::string>& cells, const char* tag) {
  std::string row = "<tr>";
  for (const std::string& cell : cells) row += fmt::format("<{0}>{1}</{0}>", tag, html_escaped(cell));
  return row + "</tr>\n";
}

std::string ms(double seconds) { return fmt::format("{:.1f}", seconds * kMs); }

std::string steps_table(const perf::Study& study) {
  std::string table = html_row(
      {"network", "samples per process", "allreduce", "compute, ms", "communication, ms", "one by one, ms", "overlapped, ms"}, "th");
  for (const perf::StepRow& row : study.steps)
    if (row.sweep == "batch" && (row.batch == 10 || row.batch == study.options.batch))
      table += html_row(
          {perf::title_of(row.network), fmt::format("{}", row.batch), fmt::format("{} {}", name_of(row.topology), name_of(row.method)),
           ms(row.time.compute), ms(row.time.communication), ms(row.time.sequential()), ms(row.time.overlapped)},
          "td");
  return "<table class=\"from4\">\n" + table + "</table>\n";
}

std::string schedules_table(const perf::Study& study) {
  std::string table = html_row({"network", "algorithm", "closed form, ms", "by its steps, ms"}, "th");
  for (const perf::ScheduleRow& row : study.schedules)
    table += html_row({perf::title_of(row.network), row.algorithm, row.closed_s ? ms(*row.closed_s) : "–", ms(row.steps_s)}, "td");
  return "<table class=\"from3\">\n" + table + "</table>\n";
}

constexpr std::string_view kPageStyle = R"(<style>
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;max-width:1120px;margin:2rem auto;padding:0 1rem}
figure{margin:2rem 0}figure svg{max-width:100%;height:auto}figcaption{margin:.3rem 1rem}
table{border-collapse:collapse;margin:1rem 0}th,td{text-align:left;padding:.2rem .8rem;border-bottom:1px solid #8886}
td{font-variant-numeric:tabular-nums}
.from3 :is(th,td):nth-child(n+3),.from4 :is(th,td):nth-child(n+4){text-align:right}
</style>
)";

}  // namespace

std::vector<StudyFigure> study_figures(const perf::Study& study) {
  std::vector<StudyFigure> figures = {
      intensity_figure(study, "intensity", &perf::Intensity::blocked, "Arithmetic intensity of blocked products",
                       "Whether C is counted once or twice decides on which side of the ridge a full block lies."),
      intensity_figure(study, "intensity_whole", &perf::Intensity::whole, "Arithmetic intensity of whole tensors",
                       "Each tensor moved once, as if the caches held everything: an upper bound.")};
  for (const SweepLook& look : kLooks) figures.push_back(sweep_figure(study, look));
  figures.push_back(fusion_figure(study));
  return figures;
}

std::string study_page(const perf::Study& study, const std::vector<StudyFigure>& figures) {
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>CCGRID 2019, recomputed</title>\n{}</head>\n<body>\n",
      kPageStyle);
  page += fmt::format(
      "<h1>Scalability of distributed CNNs: CCGRID 2019, recomputed</h1>\n<p>{}</p>\n<h2>Conclusions of the slides</h2>\n<table>\n",
      html_escaped(setting(study)));
  page += html_row({"the slides say", "follows", "what the formulas give"}, "th");
  for (const perf::Conclusion& conclusion : study.conclusions)
    page += html_row({conclusion.statement, std::string(name_of(conclusion.verdict)), conclusion.found}, "td");
  page += "</table>\n<h2>Figures</h2>\n";
  for (const StudyFigure& figure : figures)
    page += fmt::format("<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n", figure.svg, html_escaped(figure.caption));
  page += "<h2>Step times</h2>\n" + steps_table(study);
  if (!study.schedules.empty())
    page += fmt::format("<h2>One allreduce of all gradients among {} processes, by the algorithms that Paceline runs</h2>\n",
                        study.schedules.front().processes) +
            schedules_table(study);
  page += "<h2>Tables</h2>\n<p><a href=\"study.json\">study.json</a>";
  for (const char* table : kStudyTables) page += fmt::format(", <a href=\"{0}.csv\">{0}.csv</a>", table);
  return page + "</p>\n</body>\n</html>\n";
}

}  // namespace paceline::cli
