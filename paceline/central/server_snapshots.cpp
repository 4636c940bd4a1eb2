#include "paceline/central/server_snapshots.h"

#include <ATen/ATen.h>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/central/server_tensors.h"

namespace paceline::central {
namespace {

const std::string kPrefix = "ps.";

}  // namespace

ServerSnapshots::ServerSnapshots(const Settings& settings, ps::ConcurrentServer& concurrent, const Clock& clock, Files files)
    : settings_(settings), concurrent_(concurrent), files_(std::move(files)), recovery_(settings, concurrent, clock) {}

void ServerSnapshots::restore() {
  const ps::Cluster& cluster = settings_.cluster;
  if (settings_.ps.snapshot_s == 0)
    throw Error(
        fmt::format("server {} was started again, and with ps.snapshot_s=0 its parameters were lost; start a new run from the last "
                    "checkpoint with model.weights=…",
                    cluster.index));
  if (settings_.ps.replica) recovery_.await_folder();  // the servers may have been killed before it was created
  if (!recovery_.find_folder())
    throw ConfigError(fmt::format("server {} was started again and finds no folder of this run in {}; let all hosts share train.runs",
                                  cluster.index, cluster.runs));
  std::string how = "begins anew, since there was no snapshot yet";
  std::int64_t journal = 0;
  if (std::filesystem::exists(file())) {
    journal = load(files_.read(file()));
    const auto age = std::filesystem::file_time_type::clock::now() - std::filesystem::last_write_time(file());
    how = fmt::format("goes on with version {}, its snapshot of {:.1f} s ago", version_, std::chrono::duration<double>(age).count());
  }
  recovery_.resume(journal, how);
}

std::int64_t ServerSnapshots::load(std::span<const step::NamedTensor> snapshot) {
  return concurrent_.with([&](ps::Server& server) {
    const at::Tensor saved = step::saved_or_none(snapshot, kPrefix + "parameters");
    if (!saved.defined() || saved.numel() != server.length())
      throw ConfigError(fmt::format("{} does not have the {} parameters of server {}; restart the run with its original recipe",
                                    file().string(), server.length(), settings_.cluster.index));
    const ServerTensors tensors(server, at::kCPU);
    tensors.load(snapshot, kPrefix);
    tensors.parameters().copy_(saved);
    version_ = server.version();
    return recovery_.journal_after(snapshot, kPrefix);
  });
}

void ServerSnapshots::write_if_due() {
  if (!recovery_.snapshot_due()) return;
  const ps::Cluster& cluster = settings_.cluster;
  std::vector<step::NamedTensor> snapshot;
  std::optional<std::int64_t> journal;
  const bool known = recovery_.find_folder() != nullptr;
  const std::int64_t version = concurrent_.with([&](ps::Server& server) {
    if (!known || server.version() == version_) {
      recovery_.try_later();
      return version_;
    }
    const ServerTensors tensors(server, at::kCPU);
    snapshot = tensors.save(kPrefix);
    snapshot.push_back({kPrefix + "parameters", tensors.parameters().clone()});
    journal = recovery_.snapshot_taken(snapshot, kPrefix);
    return server.version();
  });
  if (!known)
    return log::warning("server {} finds no folder of this run in {} and keeps no snapshot; let all hosts share train.runs", cluster.index,
                        cluster.runs);
  if (snapshot.empty()) return;  // as it was
  try {
    files_.write(file(), snapshot);
    version_ = version;
    if (journal) recovery_.forget_before(*journal);
  } catch (const std::exception& problem) {
    log::error("no snapshot of server {} at version {}: {}; training goes on", cluster.index, version, problem.what());
  }
}

}  // namespace paceline::central
