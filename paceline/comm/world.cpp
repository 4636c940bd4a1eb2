#include "paceline/comm/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "paceline/base/checksum.h"
#include "paceline/base/error.h"
#include "paceline/base/hmac.h"
#include "paceline/base/host.h"
#include "paceline/base/process_state.h"
#include "paceline/base/text.h"

namespace paceline::comm {
namespace {

/// The names under which a launcher passes the same four numbers.
struct Names {
  const char *rank, *size, *local_rank, *local_size;
  const char* launcher;  // who sets them, for messages
};

constexpr Names kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "torchrun or `paceline run`"};
constexpr Names kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                            "mpirun"};
constexpr Names kPmi = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "mpiexec"};

// torchrun's agent may use MASTER_PORT for a store of its own.
constexpr int kPortsBesideAgent = 8;

class Reader {
 public:
  explicit Reader(const EnvironmentVariables& environment) : environment_(environment) {}

  std::optional<std::string> text(const char* name) const { return environment_(name); }
  bool has(const char* name) const { return environment_(name).has_value(); }
  std::string text_or_empty(const char* name) const { return environment_(name).value_or(""); }

  std::string needed(const char* name, const std::string& because) const {
    const std::optional<std::string> found = environment_(name);
    if (!found || found->empty()) throw ConfigError(fmt::format("{} is not set, but {}; set it, or unset the others", name, because));
    return *found;
  }

  /// An integer in [least, most]; the message explains `most`.
  int number(const char* name, const std::string& value, int least, int most, const std::string& why_most) const {
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size())
      throw ConfigError(fmt::format("{}='{}' is not a whole number; set it to {} … {}", name, value, least, why_most));
    if (number < least || number > most)
      throw ConfigError(fmt::format("{}={} is out of range; it must be from {} to {}", name, number, least, why_most));
    return number;
  }

 private:
  const EnvironmentVariables& environment_;
};

constexpr int kMaxRanks = 1 << 20;

/// Reads rank and size, which must both be set, and the local pair, of which both or neither must be; returns whether the local pair was.
bool read_ranks(const Reader& reader, const Names& names, World& world) {
  const auto beside = [&](const char* set) { return fmt::format("{} is, as {} sets them together", set, names.launcher); };
  const std::string size = reader.needed(names.size, beside(names.rank));
  const std::string rank = reader.needed(names.rank, beside(names.size));
  world.size = reader.number(names.size, size, 1, kMaxRanks, std::to_string(kMaxRanks));
  world.rank = reader.number(names.rank, rank, 0, world.size - 1, fmt::format("{} ({}−1)", world.size - 1, names.size));
  if (!reader.has(names.local_rank) && !reader.has(names.local_size)) return false;
  const std::string local_size = reader.needed(names.local_size, beside(names.local_rank));
  const std::string local_rank = reader.needed(names.local_rank, beside(names.local_size));
  world.local_size = reader.number(names.local_size, local_size, 1, world.size, fmt::format("{} ({})", world.size, names.size));
  world.local_rank = reader.number(names.local_rank, local_rank, 0, world.local_size - 1,
                                   fmt::format("{} ({}−1)", world.local_size - 1, names.local_size));
  return true;
}

void read_address(const Reader& reader, World& world, const std::string& because) {
  world.address = reader.needed("MASTER_ADDR", because);
  world.port = reader.number("MASTER_PORT", reader.needed("MASTER_PORT", because), 1, 65535, "65535");
}

World from_torchrun(const Reader& reader) {
  World world;
  world.source = "torchrun";
  const bool local = read_ranks(reader, kTorchrun, world);
  if (world.size > 1) read_address(reader, world, fmt::format("WORLD_SIZE={} ranks must find each other", world.size));
  if (!local && names_loopback(world.address)) {  // variables set by hand, the four that PyTorch asks for
    world.local_rank = world.rank;
    world.local_size = world.size;
  }
  if (reader.text_or_empty("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    world.port += 1;
    world.more_ports = kPortsBesideAgent - 1;
    if (world.port + world.more_ports > 65535)
      throw ConfigError(
          fmt::format("MASTER_PORT={} leaves no ports after it; choose one below {}", world.port - 1, 65535 - kPortsBesideAgent));
  }
  if (const auto run = reader.text("TORCHELASTIC_RUN_ID")) world.job = *run + "." + reader.text_or_empty("TORCHELASTIC_RESTART_COUNT");
  return world;
}

/// The nearest ancestor that is not itself a process of the job, that is, without its rank in the environment: the launcher, or its proxy,
/// of which there is one for all ranks of a host, whether or not there are shells in between. 0 if there is none.
pid_t launcher_of(const char* rank_variable) {
  const std::string marker = std::string(1, '\0') + rank_variable + "=";
  for (pid_t pid = ::getppid(); pid > 1;) {
    std::ifstream environment(fmt::format("/proc/{}/environ", pid), std::ios::binary);
    const std::string variables{std::istreambuf_iterator<char>(environment), {}};
    if ((std::string(1, '\0') + variables).find(marker) == std::string::npos) return pid;
    const std::optional<ProcessState> state = process_state(pid);
    if (!state) break;
    pid = state->parent;
  }
  return 0;
}

/// MPICH gives its jobs no name.
std::string job_of_launcher(const char* rank_variable) {
  const pid_t launcher = launcher_of(rank_variable);
  return launcher > 0 ? fmt::format("ancestor-{}", launcher) : "";
}

bool in_slurm_step(const Reader& reader) { return reader.has("SLURM_PROCID") && reader.has("SLURM_STEP_ID"); }

/// "2(x3),1": the tasks of nodes 0, 1, 2 and of node 3. A node has at most `most` of them, as `why_most` explains.
int tasks_of_node(const Reader& reader, const char* name, const std::string& list, int node, int most, const std::string& why_most) {
  int left = node;
  for (const std::string& group : split(list, ',')) {
    const auto times = group.find("(x");
    const std::string count = group.substr(0, times);
    const int repeat = times == std::string::npos ? 1
                                                  : reader.number(name, group.substr(times + 2, group.size() - times - 3), 1, kMaxRanks,
                                                                  std::to_string(kMaxRanks));
    if (left < repeat) return reader.number(name, count, 1, most, why_most);
    left -= repeat;
  }
  throw ConfigError(fmt::format("{}='{}' does not name node {} (SLURM_NODEID)", name, list, node));
}

/// "node[07-12,20],other" → "node07".
std::string first_node(const std::string& list) {
  const auto bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const auto end = list.find_first_of("-,]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

std::string slurm_job(const Reader& reader) {
  return fmt::format("slurm-{}.{}", reader.text_or_empty("SLURM_JOB_ID"), reader.text_or_empty("SLURM_STEP_ID"));
}

void read_slurm_local(const Reader& reader, World& world) {
  const std::string because = "SLURM_PROCID and SLURM_STEP_ID are, as srun sets them together";
  const std::string most = fmt::format("{} (SLURM_NTASKS)", world.size);
  if (const auto tasks = reader.text("SLURM_STEP_TASKS_PER_NODE")) {
    const int node = reader.number("SLURM_NODEID", reader.text("SLURM_NODEID").value_or("0"), 0, kMaxRanks, std::to_string(kMaxRanks));
    world.local_size = tasks_of_node(reader, "SLURM_STEP_TASKS_PER_NODE", *tasks, node, world.size, most);
  } else {
    world.local_size = reader.number("SLURM_NTASKS_PER_NODE", reader.needed("SLURM_NTASKS_PER_NODE", because), 1, world.size, most);
  }
  world.local_rank = reader.number("SLURM_LOCALID", reader.needed("SLURM_LOCALID", because), 0, world.local_size - 1,
                                   fmt::format("{} (the tasks of the node −1)", world.local_size - 1));
}

World from_mpi(const Reader& reader, const Names& names) {
  World world;
  world.source = "mpi";
  if (!read_ranks(reader, names, world) && in_slurm_step(reader)) read_slurm_local(reader, world);
  if (reader.has("MASTER_ADDR") || reader.has("MASTER_PORT")) read_address(reader, world, "the other of MASTER_ADDR and MASTER_PORT is");
  for (const char* name : {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_JOBID"})
    if (const auto job = reader.text(name); job && world.job.empty()) world.job = "mpi-" + *job;
  if (world.job.empty()) world.job = in_slurm_step(reader) ? slurm_job(reader) : job_of_launcher(names.rank);
  return world;
}

World from_slurm(const Reader& reader) {
  World world;
  world.source = "slurm";
  const char* size = reader.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  const std::string because = "SLURM_PROCID and SLURM_STEP_ID are, as srun sets them together";
  world.size = reader.number(size, reader.needed(size, because), 1, kMaxRanks, std::to_string(kMaxRanks));
  world.rank = reader.number("SLURM_PROCID", reader.needed("SLURM_PROCID", because), 0, world.size - 1,
                             fmt::format("{} ({}−1)", world.size - 1, size));
  if (world.size > 1) read_slurm_local(reader, world);
  world.job = slurm_job(reader);
  if (reader.has("MASTER_ADDR") || reader.has("MASTER_PORT")) {
    read_address(reader, world, "the other of MASTER_ADDR and MASTER_PORT is");
  } else if (const auto nodes = reader.text("SLURM_STEP_NODELIST"); nodes && !world.one_host()) {
    world.address = first_node(*nodes);
    world.port = port_for(world.job);
  }
  return world;
}

}  // namespace

int port_for(const std::string& job) { return 20000 + static_cast<int>(crc32c(std::as_bytes(std::span(job))) % 10000); }

EnvironmentVariables process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

World World::of_thread(int index, int threads) const {
  World world = *this;
  world.rank = rank * threads + index, world.size = size * threads;
  world.local_rank = local_rank * threads + index, world.local_size = local_size * threads;
  return world;
}

std::pair<int, int> World::part_of_cores(int index, int threads) const {
  if (cores > usable_cores()) return {index, threads};
  return {local_rank * threads + index, local_size * threads};
}

int cores_between(int ranks, int own, int launchers) { return std::max(own, std::min(launchers, own * ranks)); }

World discover(const EnvironmentVariables& environment) {
  const Reader reader(environment);
  World world;
  const char* rank = nullptr;
  if (reader.has(kTorchrun.rank) || reader.has(kTorchrun.size)) world = from_torchrun(reader), rank = kTorchrun.rank;
  else if (reader.has(kOpenMpi.rank) || reader.has(kOpenMpi.size)) world = from_mpi(reader, kOpenMpi), rank = kOpenMpi.rank;
  else if (reader.has(kPmi.rank) || reader.has(kPmi.size)) world = from_mpi(reader, kPmi), rank = kPmi.rank;
  else if (in_slurm_step(reader)) world = from_slurm(reader), rank = "SLURM_PROCID";
  else {
    for (const char* stray : {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
      if (reader.has(stray)) throw ConfigError(fmt::format("{} is set, but RANK and WORLD_SIZE are not; set them too, or unset it", stray));
  }
  if (const auto job = reader.text("PACELINE_JOB"); job && !job->empty()) {
    // The key authenticates the ranks, so it stays out of files that others can read.
    world.job = *job, world.run = public_name(*job, "job");
    world.secret = true;
    if (const auto restarts = reader.text("PACELINE_RESTARTS"))
      world.restarts = reader.number("PACELINE_RESTARTS", *restarts, 0, kMaxRanks, std::to_string(kMaxRanks));
    // Processes left over from an earlier start must not join this one. Servers restart one by one and remain one job.
    if (rank != nullptr && world.restarts > 0) world.job += fmt::format(".{}", world.restarts);
    if (world.source == "torchrun") world.source = "paceline run";
  }
  if (const pid_t launcher = world.local_size > 1 ? launcher_of(rank) : 0; launcher > 0) {
    int launchers = static_cast<int>(allowed_cores(launcher).size());
    // srun's daemon may use the whole node, of which the job has only a part.
    if (in_slurm_step(reader)) launchers = std::min(launchers, std::atoi(reader.text_or_empty("SLURM_CPUS_ON_NODE").c_str()));
    world.cores = cores_between(world.local_size, usable_cores(), launchers);
  }
  return world;
}

std::string host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  for (const char* space : {"pid", "net"}) {
    std::error_code error;
    id += "/" + std::filesystem::read_symlink(fmt::format("/proc/self/ns/{}", space), error).string();
  }
  return id;
}

}  // namespace paceline::comm
