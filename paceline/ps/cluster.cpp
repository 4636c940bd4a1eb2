#include "paceline/ps/cluster.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "paceline/base/error.h"
#include "paceline/base/hmac.h"
#include "paceline/base/key_file.h"
#include "paceline/base/text.h"

namespace paceline::ps {
namespace {

int number(const char* name, const std::string& text, int least, int most) {
  try {
    std::size_t end = 0;
    const int value = std::stoi(text, &end);
    if (end == text.size() && value >= least && value <= most) return value;
  } catch (const std::exception&) {  // reported below
  }
  throw ConfigError(fmt::format("{}='{}' is not a number from {} to {}; `paceline run --servers` sets it", name, text, least, most));
}

std::vector<std::string> addresses_of(const std::string& list, const char* what) {
  std::vector<std::string> addresses = split(list, ',');
  for (const std::string& address : addresses)
    if (address.find(':') == std::string::npos)
      throw ConfigError(fmt::format("{}: '{}' is not the address of a server; write host:port,host:port", what, address));
  return addresses;
}

}  // namespace

Cluster discover(const comm::EnvironmentVariables& environment) {
  const auto variable = [&](const char* name) { return environment(name).value_or(""); };
  const auto number_in = [&](const char* name, int least, int most) { return number(name, variable(name), least, most); };
  const std::string role = variable("PACELINE_ROLE");
  if (role.empty()) return {};
  if (role != "server" && role != "worker") throw ConfigError(fmt::format("PACELINE_ROLE='{}' is neither server nor worker", role));
  Cluster cluster;
  cluster.role = role == "server" ? Cluster::Role::server : Cluster::Role::worker;
  cluster.servers = addresses_of(variable("PACELINE_SERVERS"), "PACELINE_SERVERS");
  if (role == "server") cluster.index = number_in("PACELINE_SERVER", 0, static_cast<int>(cluster.servers.size()) - 1);
  if (role == "worker" && !variable("PACELINE_WORKER").empty()) cluster.index = number_in("PACELINE_WORKER", 0, 1 << 13);
  if (!variable("PACELINE_RESTARTS").empty()) cluster.restarts = number_in("PACELINE_RESTARTS", 0, 1 << 20);
  if (!variable("PACELINE_MAX_RESTARTS").empty()) cluster.max_restarts = number_in("PACELINE_MAX_RESTARTS", 0, 1 << 20);
  if (!variable("PACELINE_WORKERS").empty()) cluster.workers = number_in("PACELINE_WORKERS", 1, 1 << 20);
  cluster.key = variable("PACELINE_JOB");
  if (!cluster.key.empty()) cluster.job = public_name(cluster.key, "job");  // a hash, which is not secret
  return cluster;
}

std::string difference(const std::string& here, const std::string& there) {
  const auto read = [](const std::string& lines) {
    std::map<std::string, std::string> terms;
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
      const auto equals = std::min(line.find('='), line.size());
      terms[line.substr(0, equals)] = equals < line.size() ? line.substr(equals + 1) : "";
    }
    return terms;
  };
  auto mine = read(here), others = read(there);
  for (const auto& [key, value] : others) mine.try_emplace(key, "not known");
  std::vector<std::string> differences;
  for (const auto& [key, value] : mine) {
    const auto other = others.try_emplace(key, "not known").first;
    if (value != other->second) differences.push_back(fmt::format("{} is {} here and {} there", key, value, other->second));
  }
  return fmt::format("{}", fmt::join(differences, ", "));
}

Cluster joining(const std::string& addresses, const std::string& key_file) {
  Cluster cluster;
  cluster.role = Cluster::Role::worker;
  cluster.servers = addresses_of(addresses, "--join");
  cluster.key = key_file.empty() ? comm::process_environment()("PACELINE_JOB").value_or("") : read_key(key_file);
  if (cluster.key.empty())
    throw ConfigError("--join needs the job's key; give --key-file RUN/servers/key, or set PACELINE_JOB to its content");
  return cluster;
}

Cluster among(std::shared_ptr<comm::Communicator> ranks, std::int64_t servers) {
  if (ranks->size() <= servers)
    throw ConfigError(
        fmt::format("ps.transport=mpi: {} and at least one worker need {} ranks, but there {} {}; start them with mpirun -np {}",
                    plural(servers, "server"), servers + 1, ranks->size() == 1 ? "is" : "are", ranks->size(), servers + 1));
  Cluster cluster;
  const int rank = ranks->rank(), count = static_cast<int>(servers);
  cluster.role = rank < count ? Cluster::Role::server : Cluster::Role::worker;
  cluster.index = rank < count ? rank : rank - count;
  cluster.workers = ranks->size() - count;
  for (int server = 0; server < count; ++server) cluster.servers.push_back(fmt::format("rank {}", server));
  cluster.ranks = std::move(ranks);
  return cluster;
}

}  // namespace paceline::ps
