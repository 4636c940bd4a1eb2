// paceline probe: measures this machine, or the ranks of a job, and writes a cluster file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "command.h"
#include "measured_file.h"
#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/host.h"
#include "paceline/base/text.h"
#include "paceline/comm/engine.h"
#include "paceline/measure/probe.h"
#include "paceline/observe/measuring_line.h"
#include "paceline/tensor/device.h"
#include "paceline/tensor/recorded.h"

namespace paceline::cli {
namespace {

using perf::Dimension;
using Json = nlohmann::ordered_json;

constexpr double kLargestOnCpu = 2.2e9, kLargestOnGpu = 2.2e12;  // flops of one product: 1024³ and 8192³, twice

struct ProbeFlags {
  std::int64_t workers = 0;
  std::string device = "auto", precisions, name, ranks, out = "cluster.toml";
  double seconds = 0.05;
  bool json = false;
};

measure::ProbeOptions options_of(const ProbeFlags& flags) {
  measure::ProbeOptions options{.device = tensor::parse_device(flags.device), .seconds = flags.seconds};
  options.name = plain_name(flags.name.empty() ? host_name() : flags.name);
  options.largest_product = options.device.is_cuda() ? kLargestOnGpu : kLargestOnCpu;
  for (const std::string& name : items_of(flags.precisions)) {
    tensor::parse_precision(name, options.device);
    const perf::Precision precision = perf::precision_named(name);
    if (precision != perf::Precision::fp32) options.precisions.push_back(precision);
  }
  if (flags.precisions.empty() && options.device.is_cuda())
    options.precisions = {perf::Precision::fp32, perf::Precision::tf32, perf::Precision::bf16};
  return options;
}

Json probed_quantity(const perf::Quantity& quantity) { return {{"value", quantity.value}, {"source", name_of(quantity.source)}}; }

Json speed_json(const perf::Quantity& flops, const perf::Efficiency& products, const perf::Efficiency& convolutions) {
  const auto points = [](const perf::Efficiency& of) {
    Json list = Json::array();
    for (const auto& point : of.points) list.push_back({{"flops", point.flops}, {"share", point.share}});
    return list;
  };
  return {{"flops", probed_quantity(flops)}, {"products", points(products)}, {"convolutions", points(convolutions)}};
}

Json link_json(const perf::Link& link) {
  return {{"name", link.name},
          {"latency", probed_quantity(link.latency)},
          {"bandwidth", probed_quantity(link.bandwidth)},
          {"gap", probed_quantity(link.gap)},
          {"duplex", probed_quantity(link.duplex)}};
}

Json probed_cluster(const perf::Cluster& cluster) {
  const perf::Device& device = cluster.device;
  Json speeds = {{"fp32", speed_json(device.flops, device.products, device.convolutions)}};
  for (const auto& [name, speed] : {std::pair{"tf32", device.tf32}, std::pair{"bf16", device.bf16}, std::pair{"fp16", device.fp16}})
    if (speed.known()) speeds[name] = speed_json(speed.flops, speed.products, speed.convolutions);
  Json document = {{"name", cluster.name},
                   {"hosts", cluster.hosts},
                   {"devices", cluster.devices},
                   {"device",
                    {{"name", device.name},
                     {"speeds", speeds},
                     {"memory_bandwidth", probed_quantity(device.memory_bandwidth)},
                     {"memory", probed_quantity(device.memory)},
                     {"launch", probed_quantity(device.launch)},
                     {"update_bandwidth", probed_quantity(device.update_bandwidth)},
                     {"reduce_bandwidth", probed_quantity(device.reduce_bandwidth)},
                     {"page_bandwidth", probed_quantity(device.page_bandwidth)},
                     {"slowdown", probed_quantity(device.slowdown)}}},
                   {"inside", link_json(cluster.inside)},
                   {"between", link_json(cluster.between)},
                   {"collectives", Json::array()}};
  for (const perf::CollectiveTimes& times : cluster.collectives) {
    Json points = Json::array();
    for (const auto& point : times.points) points.push_back({{"bytes", point.bytes}, {"seconds", point.seconds}});
    document["collectives"].push_back({{"collective", times.collective},
                                       {"algorithm", times.algorithm},
                                       {"ranks", times.ranks},
                                       {"per_host", times.per_host},
                                       {"times", points}});
  }
  return document;
}

std::string link_line(const perf::Link& link) {
  return fmt::format("  {:<16}latency {}, {}, both directions together {}\n", "link " + link.name, text_of(link.latency, Dimension::time),
                     text_of(link.bandwidth, Dimension::bandwidth), text_of({link.duplex_factor(), link.duplex.source}, Dimension::factor));
}

std::string speed_lines(std::string_view precision, const perf::Speed& speed) {
  const auto at = [](const perf::Efficiency& of) {
    return of.known() ? fmt::format("{:.0f}% to {:.0f}%", of.points.front().share * 100, of.points.back().share * 100) : "not measured";
  };
  return fmt::format("  {:<16}{}; products {}, convolutions {} of it, from the smallest to the largest\n", precision,
                     text_of(speed.flops, Dimension::flops), at(speed.products), at(speed.convolutions));
}

std::string cluster_text(const perf::Cluster& cluster) {
  const perf::Device& device = cluster.device;
  std::string text = fmt::format("{}: {} with {} each ({})\n", cluster.name, plural(cluster.hosts, "host"),
                                 plural(cluster.devices, "device"), device.name);
  text += speed_lines("fp32", device.speed(perf::Precision::fp32));
  for (const perf::Precision precision : perf::kPrecisions)
    if (precision != perf::Precision::fp32 && device.speed(precision) != device.speed(perf::Precision::fp32))
      text += speed_lines(name_of(precision), device.speed(precision));
  text += fmt::format("  {:<16}{}; {}\n", "memory", text_of(device.memory_bandwidth, Dimension::bandwidth),
                      text_of(device.memory, Dimension::bytes));
  text += fmt::format("  {:<16}{}\n", "updates", text_of(device.update_bandwidth, Dimension::bandwidth));
  text += fmt::format("  {:<16}{}\n", "reductions", text_of(device.reduce_bandwidth, Dimension::bandwidth));
  if (device.page_bandwidth.value > 0)
    text += fmt::format("  {:<16}{} to release and take again\n", "pages", text_of(device.page_bandwidth, Dimension::bandwidth));
  text += fmt::format("  {:<16}{} for each operation\n", "launches", text_of(device.launch, Dimension::time));
  if (device.slowdown.value > 0)
    text += fmt::format("  {:<16}{} as long beside an allreduce\n", "computing", text_of(device.slowdown, Dimension::factor));
  if (cluster.devices > 1) text += link_line(cluster.inside);
  if (cluster.hosts > 1 || cluster.devices == 1) text += link_line(cluster.between);
  for (const perf::CollectiveTimes& times : cluster.collectives)
    text += fmt::format("  {:<16}{:<20}{:>4} ranks: {:.0f} B in {:.1f} us, {:.0f} MiB in {:.2f} ms\n", times.collective, times.algorithm,
                        times.ranks, times.points.front().bytes, times.points.front().seconds * 1e6, times.points.back().bytes / (1 << 20),
                        times.points.back().seconds * 1e3);
  return text;
}

/// GPUs use NCCL if they belong to the ranks of a job, with one GPU per rank.
comm::CommConfig connection_of(const measure::ProbeOptions& options, const comm::World& world) {
  comm::CommConfig config;
  if (options.device.is_cuda() && world.size > 1) config.engine = "nccl", tensor::use_gpu(world.local_rank);
  return config;
}

/// Numbers of ranks for which collectives are measured, in addition to one rank per device.
std::vector<std::int64_t> crowds_of(const ProbeFlags& flags, const comm::World& world, int workers) {
  if (world.size > 1 || (flags.ranks.empty() && workers == 1)) return {};
  std::vector<std::int64_t> ranks = flags.ranks.empty() ? std::vector<std::int64_t>{2 * workers} : whole_list(flags.ranks, "--ranks", 1024);
  std::erase_if(ranks, [&](std::int64_t number) { return number == workers || number == 1; });
  return ranks;
}

void keep(perf::Cluster& cluster, perf::Cluster measured) { cluster = std::move(measured); }
void keep(perf::Cluster& cluster, const std::vector<perf::CollectiveTimes>& more) {
  cluster.collectives.insert(cluster.collectives.end(), more.begin(), more.end());
}

int run_probe(const ProbeFlags& flags) {
  const comm::World world = comm::discover();
  if (flags.workers > 0 && world.size > 1)
    throw ConfigError(fmt::format("--workers={} is only for a start without a launcher; {} has started {} ranks. Leave it out",
                                  flags.workers, world.source, world.size));
  measure::ProbeOptions options = options_of(flags);
  const comm::CommConfig config = connection_of(options, world);
  if (world.rank == 0 && flags.out != "-") ensure_writable_folder(std::filesystem::absolute(flags.out).parent_path());
  const auto workers = static_cast<int>(flags.workers > 0 ? flags.workers : options.device.is_cuda() ? 1 : 2);
  perf::Cluster cluster;
  {
    observe::MeasuringLine line;
    const auto measure_among = [&](int ranks, const auto& measure) {
      measure::play(
          world, ranks, config, [&](const std::string& what) { line.say(what); },
          [&](measure::Rank& rank) {
            const SteadyClock clock;
            measure::ProbeOptions own = options;
            if (own.device.is_cuda()) own.device = tensor::parse_device("cuda");  // the GPU that is current in this thread
            const tensor::OwnStream stream(own.device);
            auto measured = measure(rank, own, clock);
            if (rank.leads()) keep(cluster, std::move(measured));
          });
    };
    measure_among(workers, measure::probe);
    for (const std::int64_t ranks : crowds_of(flags, world, workers)) measure_among(static_cast<int>(ranks), measure::probe_collectives);
  }
  if (world.rank != 0) return kDone;
  cluster.device.name = plain_name(tensor::device_name(options.device)), cluster.device.kind = options.device.is_cuda() ? "gpu" : "cpu";
  const std::string file = to_toml(cluster);
  if (flags.out != "-") write_atomically(flags.out, file);
  if (flags.json) print_json({{"file", flags.out}, {"cluster", probed_cluster(cluster)}});
  else if (flags.out == "-") std::cout << file;
  else std::cout << cluster_text(cluster) << fmt::format("\n  written to {}\n", flags.out);
  return kDone;
}

}  // namespace

Action add_probe(CLI::App& app) {
  auto flags = std::make_shared<ProbeFlags>();
  app.add_option("-n,--workers", flags->workers,
                 "devices into which this host is divided; they measure at the same time (default 2; 1 with a GPU)")
      ->check(whole_number(1, 1024));
  app.add_option(
         "--ranks", flags->ranks,
         "numbers of ranks whose collectives are measured too, separated by commas; if there are more ranks than devices, they take turns "
         "(default: twice the devices)")
      ->type_name(kNumberList);
  app.add_option("--device", flags->device, "device to measure: cpu, cuda or auto")
      ->check(known_values({"cpu", "cuda", "auto"}))
      ->capture_default_str();
  app.add_option("--precision", flags->precisions,
                 "precisions to measure besides fp32, separated by commas (default: tf32,bf16 with a GPU)")
      ->type_name(kNameList)
      ->check(known_values({"tf32", "bf16"}));
  app.add_option("--name", flags->name, "name of the cluster (default: the name of this host)")->type_name("NAME");
  app.add_option("--seconds", flags->seconds, "seconds per measurement")->capture_default_str()->check(CLI::Range(0.0, 60.0));
  app.add_option("-o,--out", flags->out, "cluster file to write (- prints it)")->type_name(kFile)->capture_default_str();
  add_json_flag(app, flags->json);
  add_examples(app, {"paceline probe", "paceline probe --workers 4 -o four.toml", "paceline run -np 2 paceline probe",
                     "mpirun -np 4 --hostfile hosts paceline probe -o cluster.toml", "paceline study ccgrid2019 --cluster cluster.toml"});
  return [flags] { return run_probe(*flags); };
}

}  // namespace paceline::cli
