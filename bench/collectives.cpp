// Collectives by message size: Paceline's engines, the peers (Open MPI, MPICH, Gloo) and the memory's own floor, measured in one run in
// alternating rounds. On a GPU, whose ranks share it, the peer is a copy of the message, which is what NCCL does for one rank. Ranks are
// programs of their own (bench/ranks, bench/peers), started by `paceline run` or mpirun.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <sstream>

#include "benchmark.h"
#include "fit.h"
#include "helpers.h"
#include "paceline/base/error.h"
#include "paceline/base/temporary_folder.h"
#include "paceline/base/text.h"
#include "paceline/comm/engine.h"
#include "paceline/launch/capture.h"
#include "paceline/schedule/schedule.h"

namespace paceline::bench {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

/// One side of the comparison: who, and the command that prints "BYTES SECONDS" lines.
struct Side {
  std::string engine, algorithm, peer;
  Words command;
  std::map<std::int64_t, std::vector<double>> seconds;  // by bytes, one per round
};

bool on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path ? path : "", ':'))
    if (access((fs::path(folder) / name).c_str(), X_OK) == 0) return true;
  return false;
}

constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;

std::vector<std::int64_t> sizes_of(const Options& options) {
  std::vector<std::int64_t> sizes;
  for (const std::string& text : items_of(options.sizes)) {
    std::int64_t number = 0;
    const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    const std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
    const int shift = unit == "K" || unit == "KiB" ? 10 : unit == "M" || unit == "MiB" ? 20 : 0;
    if (problem != std::errc{} || number <= 0 || number > kMostBytes >> shift || (shift == 0 && !unit.empty()))
      throw ConfigError(fmt::format("--sizes: '{}' is not a size; write for example 1024, 64K or 16M", text));
    sizes.push_back(number << shift);
  }
  if (!sizes.empty()) return sizes;
  for (std::int64_t bytes = 1 << 10; bytes <= 256 << 20; bytes *= 4) sizes.push_back(bytes);
  return sizes;
}

Words started_by(Words launcher, const Words& rank) {
  launcher.insert(launcher.end(), rank.begin(), rank.end());
  return launcher;
}

Words mpirun(const std::string& runner, int ranks) {
  if (runner != "mpirun") return {runner, "-np", std::to_string(ranks)};
  // Open MPI refuses root and more ranks than cores unless it is told that both are meant.
  return {"env", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", runner, "--oversubscribe", "-np", std::to_string(ranks)};
}

Words launched(int ranks) { return {main_program(), "run", "--no-prefix", "-np", std::to_string(ranks), "--"}; }

std::vector<Side> sides_of(schedule::Collective kind, const Options& options, const std::string& size_list, const fs::path& scratch) {
  const int ranks = options.ranks;
  const std::string collective(schedule::name_of(kind));
  const std::string rank = helper("bench_rank");
  std::vector<Side> sides;
  std::vector<std::string> algorithms = items_of(options.algorithms);
  if (algorithms.empty()) algorithms = {"auto"};
  for (const std::string& algorithm : algorithms)
    if (algorithm != "auto") schedule::algorithm_for(algorithm, kind);  // or it says which there are
  for (const std::string& engine : items_of(options.engines)) {
    comm::engine_of(engine);
    for (const std::string& algorithm : algorithms) {
      const Words start = engine == "local" ? Words{} : engine == "mpi" ? mpirun("mpirun", ranks) : launched(ranks);
      const Words words = {rank, engine, std::to_string(ranks), collective, algorithm, size_list, options.device};
      sides.push_back({engine, algorithm, "", started_by(start, words), {}});
    }
  }
  const bool on_gpu = options.device != "cpu";
  if (on_gpu) sides.push_back({"", "", "device copy", {rank, "copy", "1", "-", "-", size_list, options.device}, {}});
  if (options.peers && !on_gpu) {
    const auto add = [&](const std::string& peer, const std::string& runner, const std::string& binary) {
      const std::string found = helper_if_any(binary);
      if (on_path(runner) && !found.empty())
        sides.push_back({"", "", peer, started_by(mpirun(runner, ranks), {found, collective, size_list}), {}});
    };
    add("Open MPI", "mpirun", "bench_peer_mpi");
    add("MPICH", "mpiexec.mpich", "bench_peer_mpich");
    if (const std::string gloo = helper_if_any("bench_peer_gloo"); !gloo.empty())
      sides.push_back({"", "", "Gloo", started_by(launched(ranks), {gloo, collective, size_list, scratch.string()}), {}});
  }
  sides.push_back({"", "", "memory roofline", {rank, "roofline", std::to_string(ranks), collective, "-", size_list, options.device}, {}});
  return sides;
}

void measure(Side& side, const fs::path& scratch) {
  fs::remove_all(scratch);
  fs::create_directories(scratch);
  const launch::Captured ranks = launch::capture(side.command);
  if (!ranks.exit.good()) throw Error(fmt::format("{}: {}", fmt::join(side.command, " "), ranks.complaint()));
  std::istringstream lines(ranks.out);
  double seconds = 0;
  for (std::int64_t bytes = 0; lines >> bytes >> seconds;) side.seconds[bytes].push_back(seconds);
}

/// What the links carry for each byte of the message (NCCL's "bus bandwidth").
double bus_factor(const std::string& collective, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  if (collective == "allreduce") return 2 * share;
  return collective == "broadcast" ? 1 : share;
}

std::vector<Row> bench_collective(schedule::Collective kind, const Options& options, const Say& say) {
  const std::string collective(schedule::name_of(kind));
  const std::vector<std::int64_t> sizes = sizes_of(options);
  const TemporaryFolder folder;
  const fs::path scratch = folder / "ranks";
  std::vector<Side> sides = sides_of(kind, options, fmt::format("{}", fmt::join(sizes, ",")), scratch);
  for (int round = 0; round < options.rounds; ++round)
    for (Side& side : sides) {
      say(fmt::format("{} by {}, round {} of {}", collective, side.peer.empty() ? side.engine + " " + side.algorithm : side.peer, round + 1,
                      options.rounds));
      measure(side, scratch);
    }
  std::vector<Row> rows;
  for (const Side& side : sides)
    for (const auto& [bytes, seconds] : side.seconds) {
      const double time = median(seconds), rate = static_cast<double>(bytes) / time;
      Row row = {{"engine", side.engine},
                 {"algorithm", side.algorithm},
                 {"peer", side.peer},
                 {"ranks", options.ranks},
                 {"bytes", bytes},
                 {"seconds", time},
                 {"algbw_bytes_per_s", rate},
                 {"busbw_bytes_per_s", rate * bus_factor(collective, options.ranks)}};
      if (side.peer.empty())
        for (const Side& other : sides)  // how many times as long each peer takes
          if (!other.peer.empty() && other.seconds.contains(bytes)) row["vs " + other.peer] = median(other.seconds.at(bytes)) / time;
      rows.push_back(row);
    }
  std::map<std::int64_t, double> reductions;
  for (const Side& side : sides)
    if (side.peer.empty() && side.algorithm != "auto" && options.device == "cpu") {
      std::map<std::int64_t, double> times;
      for (const auto& [bytes, seconds] : side.seconds) times[bytes] = median(seconds);
      if (reductions.empty()) reductions = reduction_costs(sizes);
      if (const auto fit = fit_costs(collective, side.algorithm, options.ranks, times, reductions)) rows.push_back(fit->row(side.engine));
    }
  return rows;
}

}  // namespace

std::vector<Row> bench_allreduce(const Options& options, const Say& say) {
  return bench_collective(schedule::Collective::allreduce, options, say);
}
std::vector<Row> bench_reduce_scatter(const Options& options, const Say& say) {
  return bench_collective(schedule::Collective::reduce_scatter, options, say);
}
std::vector<Row> bench_all_gather(const Options& options, const Say& say) {
  return bench_collective(schedule::Collective::all_gather, options, say);
}
std::vector<Row> bench_broadcast(const Options& options, const Say& say) {
  return bench_collective(schedule::Collective::broadcast, options, say);
}

}  // namespace paceline::bench
