#include "paceline/launch/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <sstream>
#include <string_view>

#include "paceline/base/error.h"
#include "paceline/base/files.h"
#include "paceline/base/text.h"

namespace paceline::launch {
namespace {

constexpr std::uintmax_t kLargestHostfile = 1 << 20;

constexpr int kMaxRanks = 100'000;

std::optional<int> positive(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool good = error == std::errc() && end == text.data() + text.size() && number > 0 && number <= kMaxRanks;
  return good ? std::optional(number) : std::nullopt;
}

/// A name that ssh cannot mistake for an option, nor a shell for a command.
bool is_host_name(std::string_view name) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("._-@").find(static_cast<char>(c)) != std::string_view::npos;
  };
  return !name.empty() && name.front() != '-' && std::ranges::all_of(name, allowed);
}

void add_host(std::vector<Host>& hosts, const std::string& name, int slots) {
  const auto known = std::ranges::find(hosts, name, &Host::name);
  if (known == hosts.end()) return hosts.push_back({name, slots});
  known->slots += slots;
  if (known->slots > kMaxRanks)
    throw ConfigError(fmt::format("host {} has {} slots in total, more than the {} ranks that can be started; give fewer", name,
                                  known->slots, kMaxRanks));
}

/// The number of processes of the whole job, if the request gives it.
std::optional<int> processes(const Request& request) { return request.workers ? request.servers + *request.workers : request.ranks; }

/// The same in the user's words.
std::string spelled(const Request& request) {
  if (!request.workers) return fmt::format("-np {}", request.ranks.value_or(0));
  return (request.servers > 0 ? fmt::format("--servers {} ", request.servers) : "") + fmt::format("--workers {}", *request.workers);
}

int checked_ranks(std::int64_t count) {
  if (count < 1 || count > kMaxRanks) throw ConfigError(fmt::format("{} ranks cannot be started; use 1 to {}", count, kMaxRanks));
  return static_cast<int>(count);
}

void check_counts(const Request& request) {
  const auto servers = request.servers == 0 ? std::nullopt : std::optional(request.servers);
  for (const std::optional<int>& count : {request.ranks, request.per_node, servers, request.workers})
    if (count) checked_ranks(*count);
  if (request.servers > 0) {
    if (request.ranks)
      throw ConfigError(fmt::format("-np is for jobs without --servers; write --servers {} --workers {}", request.servers, *request.ranks));
    if (!request.workers)
      throw ConfigError(fmt::format("--servers {} needs --workers N, the number of processes that train", request.servers));
    if (request.per_node)
      throw ConfigError(fmt::format("{} already sets the number of processes; leave --nproc-per-node out", spelled(request)));
    if (request.nodes > 1) throw ConfigError("servers and workers are started by one launcher; name the hosts with -H instead of --nnodes");
  }
  if (request.ranks && request.workers) throw ConfigError("without --servers, --workers says the same as -np; give one of them");
}

void place_on_host(Placement& placement, const Host& host, int count, int node, bool here) {
  for (int local = 0; local < count; ++local)
    placement.places.push_back({static_cast<int>(placement.places.size()), local, count, node, host.name, here});
}

Placement place_over_hosts(const Request& request, const Machine& machine) {
  if (request.nodes > 1 || request.node_rank)
    throw ConfigError(
        "-H and --hostfile start the ranks of all hosts from here; --nnodes and --node-rank are for one launcher per host: give one or the "
        "other");
  std::vector<Host> hosts = request.hosts;
  if (request.per_node)
    for (Host& host : hosts) host.slots = *request.per_node;
  std::int64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  const std::optional<int> asked = processes(request);
  Placement placement;
  placement.size = checked_ranks(asked ? *asked : slots);
  if (placement.size > slots)
    throw ConfigError(fmt::format("{} is more than the {} slots of {}; give more with host:slots, or ask for less", spelled(request), slots,
                                  plural(static_cast<std::int64_t>(hosts.size()), "host")));
  int node = 0;
  for (const Host& host : hosts)
    if (const int count = std::min(host.slots, placement.size - static_cast<int>(placement.places.size())); count > 0)
      place_on_host(placement, host, count, node++, machine.is_here(host.name));
  return placement;
}

Placement place_on_one_node(const Request& request, const Machine& machine) {
  if (request.nodes > 1 && !request.node_rank)
    throw ConfigError(fmt::format("--nnodes {} needs --node-rank, the number of this host from 0 to {}", request.nodes, request.nodes - 1));
  const int node = request.node_rank.value_or(0);
  if (node >= request.nodes) throw ConfigError(fmt::format("--node-rank {} must be below --nnodes {}", node, request.nodes));
  const std::optional<int> ranks = processes(request);
  if (request.nodes > 1 && ranks) throw ConfigError(fmt::format("with --nnodes, use --nproc-per-node instead of {}", spelled(request)));
  if (ranks && request.per_node && *ranks != *request.per_node)
    throw ConfigError(
        fmt::format("{} and --nproc-per-node {} contradict each other on one host; give one of them", spelled(request), *request.per_node));
  const int count = request.per_node.value_or(ranks.value_or(machine.cores));
  Placement placement;
  placement.size = checked_ranks(std::int64_t{count} * request.nodes);
  place_on_host(placement, {}, count, node, true);
  for (Place& place : placement.places) place.rank += node * count;
  return placement;
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& list) {
  std::vector<Host> hosts;
  for (const std::string& part : split(list, ',')) {
    const auto colon = part.find(':');
    const std::string name = part.substr(0, colon);
    const std::optional<int> slots = colon == std::string::npos ? 1 : positive(part.substr(colon + 1));
    if (!is_host_name(name) || !slots)
      throw ConfigError(fmt::format("-H '{}': '{}' is not host or host:slots, as in -H a:2,b:4", list, part));
    add_host(hosts, name, *slots);
  }
  return hosts;
}

std::vector<Host> read_hostfile(const std::filesystem::path& file) {
  // A data file given by mistake would be read and shown completely.
  std::error_code code;  // read_file reports why it cannot be read
  if (const auto bytes = std::filesystem::file_size(file, code); !code && bytes > kLargestHostfile)
    throw DataError(file.string(),
                    fmt::format("has {} bytes, but a hostfile has at most {}; check that it is the right file", bytes, kLargestHostfile));
  std::vector<Host> hosts;
  std::istringstream lines(read_file(file));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, word;
    if (!(words >> name)) continue;
    int slots = 1;
    bool good = is_host_name(name);
    while (words >> word) {
      if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) continue;  // how far mpirun may exceed the slots; we never do
      const std::optional<int> value = word.starts_with("slots=") ? positive(word.substr(6)) : std::nullopt;
      good = good && value;
      slots = value.value_or(1);
    }
    if (!good) throw DataError(file.string(), fmt::format("line {}: '{}' is not `host slots=N`", number, line));
    add_host(hosts, name, slots);
  }
  if (hosts.empty()) throw DataError(file.string(), "names no host; write a line `host slots=N` for each");
  return hosts;
}

Placement place_ranks(const Request& request, const Machine& machine) {
  check_counts(request);
  return request.hosts.empty() ? place_on_one_node(request, machine) : place_over_hosts(request, machine);
}

int parse_per_node(const std::string& text, const Machine& machine) {
  if (text == "auto" || text == "cpu") return machine.cores;
  if (text == "gpu") {
    if (machine.gpus == 0) throw ConfigError("--nproc-per-node gpu: this host has no /dev/nvidia0; give a number");
    return machine.gpus;
  }
  const std::optional<int> number = positive(text);
  if (!number) throw ConfigError(fmt::format("--nproc-per-node '{}' is not a number from 1 to {}, nor cpu, gpu or auto", text, kMaxRanks));
  return *number;
}

int parse_nodes(const std::string& text) {
  const auto colon = text.find(':');
  const std::optional<int> least = positive(text.substr(0, colon));
  const std::optional<int> most = colon == std::string::npos ? least : positive(text.substr(colon + 1));
  if (!least || !most || *most < *least) throw ConfigError(fmt::format("--nnodes '{}' is not a number of hosts", text));
  if (*least != *most)
    throw ConfigError(fmt::format("--nnodes {}: elastic jobs (MIN:MAX hosts) are not supported; give one number of hosts", text));
  return *least;
}

}  // namespace paceline::launch
