#include "study_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "paceline/base/text.h"
#include "paceline/observe/formatting.h"

namespace paceline::cli {
namespace {

using perf::Dimension;
using perf::Method;
using perf::Topology;
using Json = nlohmann::ordered_json;

constexpr double kMilli = 1e3;

Json step_json(const perf::StepRow& row) {
  return {{"sweep", row.sweep},
          {"network", row.network},
          {"topology", name_of(row.topology)},
          {"allreduce", name_of(row.method)},
          {"samples_per_process", row.batch},
          {"processes", row.processes},
          {"gflop_per_s", row.flops_per_s / 1e9},
          {"memory_gb_per_s", row.memory_bytes_per_s / 1e9},
          {"link_gbit_per_s", row.link_bytes_per_s * 8 / 1e9},
          {"compute_ms", row.time.compute * kMilli},
          {"communication_ms", row.time.communication * kMilli},
          {"sequential_ms", row.time.sequential() * kMilli},
          {"overlapped_ms", row.time.overlapped * kMilli}};
}

Json intensity_json(const perf::IntensityRow& row, double ridge) {
  return {{"network", row.network},       {"samples_per_process", row.batch},           {"output_traffic", name_of(row.traffic)},
          {"phase", name_of(row.phase)},  {"blocked_flop_per_byte", row.value.blocked}, {"whole_flop_per_byte", row.value.whole},
          {"ridge_flop_per_byte", ridge}, {"gflop_per_s", row.value.flops_per_s / 1e9}, {"memory_bound_share", row.value.memory_bound}};
}

Json fusion_json(const perf::FusionRow& row) {
  return {{"network", row.network},
          {"topology", "star"},
          {"allreduce", name_of(row.method)},
          {"fused_mb", static_cast<double>(row.bytes) / 1e6},
          {"compute_ms", row.time.compute * kMilli},
          {"communication_ms", row.time.communication * kMilli},
          {"sequential_ms", row.time.sequential() * kMilli},
          {"overlapped_ms", row.time.overlapped * kMilli}};
}

Json schedule_json(const perf::ScheduleRow& row) {
  return {{"network", row.network},
          {"algorithm", row.algorithm},
          {"processes", row.processes},
          {"closed_form_ms", row.closed_s ? Json(*row.closed_s * kMilli) : Json()},
          {"steps_ms", row.steps_s * kMilli}};
}

Json quantity_json(const perf::Quantity& quantity) { return {{"value", quantity.value}, {"source", name_of(quantity.source)}}; }

Json cluster_json(const perf::Cluster& cluster) {
  return {{"name", cluster.name},
          {"hosts", cluster.hosts},
          {"devices", cluster.devices},
          {"topology", name_of(cluster.topology)},
          {"flops", quantity_json(cluster.device.flops)},
          {"memory_bandwidth", quantity_json(cluster.device.memory_bandwidth)},
          {"memory", quantity_json(cluster.device.memory)},
          {"latency", quantity_json(cluster.between.latency)},
          {"bandwidth", quantity_json(cluster.between.bandwidth)}};
}

std::string cell_text(const Json& cell) {
  if (cell.is_null()) return {};
  return cell.is_string() ? cell.get<std::string>() : cell.is_number_float() ? fmt::format("{:.6g}", cell.get<double>()) : cell.dump();
}

/// At the point that the options select.
bool is_own_point(const perf::Study& study, const perf::StepRow& row) { return row.sweep == "batch" && row.batch == study.options.batch; }

}  // namespace

Json study_json(const perf::Study& study) {
  Json document = {{"study", "ccgrid2019"},
                   {"cluster", cluster_json(study.options.cluster)},
                   {"samples_per_process", study.options.batch},
                   {"output_traffic", name_of(study.options.traffic)},
                   {"ridge_flop_per_byte", study.ridge}};
  for (const perf::Conclusion& conclusion : study.conclusions)
    document["conclusions"].push_back(
        {{"statement", conclusion.statement}, {"follows", name_of(conclusion.verdict)}, {"found", conclusion.found}});
  for (const perf::StepRow& row : study.steps) document["steps"].push_back(step_json(row));
  for (const perf::IntensityRow& row : study.intensities) document["intensity"].push_back(intensity_json(row, study.ridge));
  for (const perf::FusionRow& row : study.fusions) document["fusion"].push_back(fusion_json(row));
  document["schedules"] = Json::array();  // a single process has none
  for (const perf::ScheduleRow& row : study.schedules) document["schedules"].push_back(schedule_json(row));
  return document;
}

std::string csv_of(const Json& rows) {
  std::string text;
  for (const Json& row : rows) {
    const bool first = text.empty();
    std::string heads, cells;
    for (const auto& [key, cell] : row.items()) {
      heads += (heads.empty() ? "" : ",") + key;
      cells += (cells.empty() ? "" : ",") + cell_text(cell);
    }
    text += (first ? heads + "\n" : "") + cells + "\n";
  }
  return text;
}

std::string study_text(const perf::Study& study) {
  const perf::Cluster& cluster = study.options.cluster;
  std::string text =
      fmt::format("ccgrid2019 on {}: {}, {} each, processor {}, memory {}, links {} and {}\n\n", cluster.name,
                  fmt::format("{} processes", show_count(cluster.processes())), plural(study.options.batch, "sample"),
                  text_of(cluster.device.flops, Dimension::flops), text_of(cluster.device.memory_bandwidth, Dimension::bandwidth),
                  text_of(cluster.between.bandwidth, Dimension::bandwidth), text_of(cluster.between.latency, Dimension::time));
  text += fmt::format("  {:<18}{:<16}{:>12}{:>16}{:>14}{:>14}\n", "milliseconds", "allreduce", "compute", "communication", "one by one",
                      "overlapped");
  for (const perf::StepRow& row : study.steps)
    if (is_own_point(study, row))
      text += fmt::format("  {:<18}{:<16}{:>12.1f}{:>16.1f}{:>14.1f}{:>14.1f}\n", perf::title_of(row.network),
                          fmt::format("{} {}", name_of(row.topology), name_of(row.method)), row.time.compute * kMilli,
                          row.time.communication * kMilli, row.time.sequential() * kMilli, row.time.overlapped * kMilli);
  text += "\n  What the slides conclude, and what the formulas give:\n";
  for (const perf::Conclusion& conclusion : study.conclusions)
    text += fmt::format("  {:<5}{}\n       {}\n", name_of(conclusion.verdict), conclusion.statement, conclusion.found);
  return text;
}

}  // namespace paceline::cli
