// paceline-bench NAME: what `paceline bench NAME` runs. A program of its own, since most users measure nothing, and it takes long to
// compile.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include "benchmark.h"
#include "flags.h"
#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/run_program.h"
#include "paceline/observe/chart.h"
#include "paceline/observe/formatting.h"
#include "paceline/observe/measuring_line.h"
#include "paceline/schedule/schedule.h"
#include "paceline/tensor/device.h"

namespace paceline::bench {
namespace {

std::string table_cell(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_float()) return value.dump();
  const double number = value.get<double>();
  return std::abs(number) >= 1000 ? fmt::format("{:.0f}", number) : fmt::format("{:.3g}", number);
}

void print_table(const std::vector<Row>& rows) {
  std::vector<std::string> keys;
  for (const auto& row : rows)
    for (const auto& [key, value] : row.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  std::map<std::string, int> width;
  for (const std::string& key : keys) {
    width[key] = observe::columns(key);
    for (const auto& row : rows) width[key] = std::max(width[key], row.contains(key) ? observe::columns(table_cell(row[key])) : 0);
  }
  const auto print = [&](const auto& text_of) {
    for (const std::string& key : keys) std::cout << observe::fit(text_of(key), width[key] + 2);
    std::cout << '\n';
  };
  print([](const std::string& key) { return key; });
  for (const auto& row : rows) print([&](const std::string& key) { return row.contains(key) ? table_cell(row[key]) : std::string(); });
}

/// Time by size, a line for each of those that were measured.
observe::Figure figure_of(const std::string& collective, const Options& options, const std::vector<Row>& rows) {
  observe::Panel panel{.title = "", .x = {.label = "KiB of each rank", .log = true}, .y = {.label = "µs", .log = true}, .series = {}};
  for (const auto& row : rows) {
    if (!row.contains("bytes")) continue;  // what was fitted to the others
    const std::string peer = row.at("peer"), engine = row.at("engine"), algorithm = row.at("algorithm");
    const std::string name = !peer.empty() ? peer : algorithm == "auto" ? engine : fmt::format("{}, {}", engine, algorithm);
    auto series = std::ranges::find(panel.series, name, &observe::Series::name);
    if (series == panel.series.end())
      series = panel.series.insert(series, {.name = name, .x = {}, .y = {}, .markers = peer.empty(), .dashed = !peer.empty()});
    series->x.push_back(row.at("bytes").get<double>() / 1024), series->y.push_back(row.at("seconds").get<double>() * 1e6);
  }
  return {.title = fmt::format("{} of {} ranks", collective, options.ranks),
          .subtitle = fmt::format("{} cores; median of {}", usable_cores(), observe::plural(options.rounds, "round")),
          .panels = {std::move(panel)},
          .panel_width = 900,
          .panel_height = 400};
}

/// Refuses, before anything is measured, a picture that cannot be drawn or written.
void check_picture(const std::string& name, const std::string& file) {
  if (file.empty()) return;
  if (std::ranges::none_of(schedule::kCollectives, [&](auto kind) { return schedule::name_of(kind) == name; }))
    throw ConfigError(
        fmt::format("bench {} has no curve to draw; --svg works with allreduce, reduce_scatter, all_gather and broadcast", name));
  ensure_writable_folder(std::filesystem::absolute(file).parent_path());
}

int measure(Flags& flags) {
  flags.options.peer = !flags.no_peer;
  const auto& entry = find(benchmarks(), "benchmark", flags.name);
  check_picture(flags.name, flags.svg);
  check_threads("--threads", flags.options.threads);
  const c10::Device device = tensor::parse_device(flags.options.device);
  tensor::configure_libtorch(device, tensor::parse_precision(flags.options.precision, device), flags.options.threads, false);
  const std::vector<Row> rows = [&] {
    observe::MeasuringLine line;
    return entry.make(flags.options, [&](const std::string& what) { line.say(what); });
  }();
  const nlohmann::ordered_json machine = {
      {"cores", usable_cores()}, {"threads", at::get_num_threads()}, {"device", tensor::device_name(device)}};
  if (!flags.svg.empty()) write_atomically(flags.svg, observe::to_svg(figure_of(flags.name, flags.options, rows)));
  if (flags.json) program::print_json({{"benchmark", flags.name}, {"machine", machine}, {"rows", rows}});
  else print_table(rows);
  return kDone;
}

int run(int argc, char** argv) {
  CLI::App app("Measures Paceline against its peers on this machine.", "paceline bench");
  program::use_plain_help(app);
  const auto flags = add_flags(app);
  try {
    program::parse_words(app, {argv + 1, argv + argc});
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    throw ConfigError(program::parse_problem(error, app));
  }
  return measure(*flags);
}

}  // namespace
}  // namespace paceline::bench

int main(int argc, char** argv) {
  return paceline::run_program([&] {
    const int code = paceline::bench::run(argc, argv);
    if (std::cout.flush() || code != paceline::kDone) return code;
    throw paceline::Error("cannot write to standard output; check whether it is closed or the disk is full");
  });
}
