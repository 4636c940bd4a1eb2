// paceline bench NAME
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include "bench/benchmark.h"
#include "command.h"
#include "paceline/base/affinity.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/observe/chart.h"
#include "paceline/observe/measuring_line.h"
#include "paceline/observe/text.h"
#include "paceline/schedule/schedule.h"
#include "paceline/tensor/device.h"

namespace paceline::cli {
namespace {

constexpr std::int64_t kMostRanks = 4096, kMostElements = std::int64_t{1} << 31;  // beyond them one waits long, and for an error

std::string cell(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_float()) return value.dump();
  const double number = value.get<double>();
  return std::abs(number) >= 1000 ? fmt::format("{:.0f}", number) : fmt::format("{:.3g}", number);
}

void print_table(const std::vector<bench::Row>& rows) {
  std::vector<std::string> keys;
  for (const auto& row : rows)
    for (const auto& [key, value] : row.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  std::map<std::string, int> width;
  for (const std::string& key : keys) {
    width[key] = observe::columns(key);
    for (const auto& row : rows) width[key] = std::max(width[key], row.contains(key) ? observe::columns(cell(row[key])) : 0);
  }
  const auto print = [&](const auto& text_of) {
    for (const std::string& key : keys) std::cout << observe::fit(text_of(key), width[key] + 2);
    std::cout << '\n';
  };
  print([](const std::string& key) { return key; });
  for (const auto& row : rows) print([&](const std::string& key) { return row.contains(key) ? cell(row[key]) : std::string(); });
}

/// Time by size, a line for each of those that were measured.
observe::Figure figure_of(const std::string& collective, const bench::Options& options, const std::vector<bench::Row>& rows) {
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
    throw ConfigError(fmt::format("bench {} has no curve to draw; --svg is for allreduce, reduce_scatter, all_gather and broadcast", name));
  ensure_writable_folder(std::filesystem::absolute(file).parent_path());
}

}  // namespace

Action add_bench(CLI::App& app) {
  struct Flags {
    std::string name, svg;
    bench::Options options;
    bool no_peer = false, json = false;
  };
  auto flags = std::make_shared<Flags>();
  std::string names;
  for (const auto& row : bench::benchmarks()) names += fmt::format("{}  {:<14} {}", "\n", row.key, row.help);
  app.add_option("NAME", flags->name, "which:" + names)->required();
  app.add_option("--threads", flags->options.threads, "0: OMP_NUM_THREADS, else all cores that it may use")
      ->capture_default_str()
      ->check(whole_number(0));
  app.add_option("--rounds", flags->options.rounds, "measurements of which the median counts")
      ->capture_default_str()
      ->check(whole_number(1));
  app.add_option("--networks", flags->options.networks, "comma-separated, for step, train and overlap");
  app.add_option("--batch", flags->options.batch, "of a worker; 0: the benchmark's own")->capture_default_str()->check(whole_number(0));
  app.add_option("--device", flags->options.device, "cpu or cuda")->capture_default_str();
  app.add_option("--precision", flags->options.precision, "fp32, tf32 or bf16")->capture_default_str();
  app.add_option("--root", flags->options.root, "folder of a dataset, for data");
  app.add_option("--python", flags->options.python, "for peers; left out: the first of python3 and /usr/bin/python3 that has PyTorch");
  app.add_option("-n,--ranks", flags->options.ranks, "of allreduce and its kin; workers of train")
      ->capture_default_str()
      ->check(whole_number(1, kMostRanks));
  app.add_option("--engines", flags->options.engines, "comma-separated, of allreduce, its kin and train")->capture_default_str();
  app.add_option("--algorithms", flags->options.algorithms, "comma-separated; each but auto is also held against its formula");
  app.add_option("--sizes", flags->options.sizes, "comma-separated, as 1024, 64K or 16M; left out: 1 KiB to 256 MiB");
  app.add_option("--elements", flags->options.elements, "values of the gradient, for compress")
      ->capture_default_str()
      ->check(whole_number(1, kMostElements));
  app.add_option("--compressors", flags->options.compressors, "comma-separated; left out: all, for compress");
  app.add_flag("--peers", flags->options.peers, "measure Open MPI, MPICH and Gloo in the same run, those that are installed");
  app.add_option("--peer", flags->options.against,
                 "whom train is held against: pytorch_ddp, which is also the default; of step: eager, graph and compile, comma-separated");
  app.add_flag("--no-peer", flags->no_peer, "measure Paceline alone");
  app.add_option("--svg", flags->svg, "draw time by size into this file, of allreduce and its kin");
  add_json_flag(app, flags->json);
  add_examples(app, {"paceline bench optim", "paceline bench step --networks lenet5,resnet18 --threads 1",
                     "paceline bench step --device cuda --precision bf16 --networks resnet18 --batch 128",
                     "paceline bench step --device cuda --precision bf16 --networks gpt2,resnet50 --peer eager,compile",
                     "paceline bench train --peer pytorch_ddp", "paceline bench overlap --rounds 3",
                     "paceline bench data --root DIR --json", "paceline bench compress --compressors int8,topk,powersgd",
                     "paceline bench allreduce --ranks 2 --peers", "paceline bench allreduce --device cuda --ranks 2",
                     "paceline bench allreduce --ranks 4 --engines shm --algorithms ring,tree,butterfly --svg algorithms.svg"});
  return [flags] {
    flags->options.peer = !flags->no_peer;
    const auto& entry = find(bench::benchmarks(), "benchmark", flags->name);
    check_picture(flags->name, flags->svg);
    check_threads("--threads", flags->options.threads);
    const c10::Device device = tensor::parse_device(flags->options.device);
    tensor::configure_libtorch(device, tensor::parse_precision(flags->options.precision, device), flags->options.threads, false);
    const std::vector<bench::Row> rows = [&] {
      observe::MeasuringLine line;
      return entry.make(flags->options, [&](const std::string& what) { line.say(what); });
    }();
    const nlohmann::ordered_json machine = {
        {"cores", usable_cores()}, {"threads", at::get_num_threads()}, {"device", tensor::device_name(device)}};
    if (!flags->svg.empty()) write_atomically(flags->svg, observe::to_svg(figure_of(flags->name, flags->options, rows)));
    if (flags->json) print_json({{"benchmark", flags->name}, {"machine", machine}, {"rows", rows}});
    else print_table(rows);
    return kDone;
  };
}

}  // namespace paceline::cli
