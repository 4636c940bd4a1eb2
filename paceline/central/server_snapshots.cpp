#include "paceline/central/server_snapshots.h"

#include <ATen/ATen.h>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/central/server_tensors.h"

namespace paceline::central {
namespace {

const std::string kPrefix = "ps.";

std::filesystem::path file_at(const std::filesystem::path& stem) { return stem.string() + ".safetensors"; }

}  // namespace

ServerSnapshots::ServerSnapshots(const Settings& settings, ps::ConcurrentServer& concurrent, const Clock& clock, Files files,
                                 const std::vector<step::NamedTensor>* checkpoint)
    : settings_(settings), concurrent_(concurrent), files_(std::move(files)), recovery_(settings, concurrent, clock) {
  const auto stem = recovery_.find_stem();
  const bool was_here = settings.cluster.restarts > 0 && (!checkpoint || (stem && std::filesystem::exists(file_at(*stem))));
  if (was_here) restore();
  else if (checkpoint) begin_with(*checkpoint);
  else recovery_.begin();
  if (recovery_.journals()) recovery_.await_stem();  // before anything is acknowledged that belongs in a journal
}

// The server was made with the checkpoint's parameters.
void ServerSnapshots::begin_with(std::span<const step::NamedTensor> checkpoint) {
  const ps::Cluster& cluster = settings_.cluster;
  check_servers(checkpoint, cluster.servers.size());
  concurrent_.with([&](ps::Server& server) {
    ServerTensors(server, at::kCPU).load_anew(checkpoint, server_prefix(static_cast<std::size_t>(cluster.index)));
  });
  recovery_.begin_with_checkpoint(0);
  if (recovery_.restartable()) write(file_at(recovery_.await_stem()));
}

void ServerSnapshots::restore() {
  const ps::Cluster& cluster = settings_.cluster;
  if (settings_.ps.snapshot_s == 0)
    throw Error(
        fmt::format("server {} was started again, and with ps.snapshot_s=0 its parameters were lost; resume the run from its last "
                    "checkpoint",
                    cluster.index));
  const std::filesystem::path file = file_at(recovery_.await_stem());  // the servers may have been killed before the folder was created
  std::string how = "begins anew, since there was no snapshot yet";
  std::int64_t journal = 0;
  if (std::filesystem::exists(file)) {
    journal = load(files_.read(file), file.string());
    const auto age = std::filesystem::file_time_type::clock::now() - std::filesystem::last_write_time(file);
    how = fmt::format("goes on with version {}, its snapshot of {:.1f} s ago", version_, std::chrono::duration<double>(age).count());
  }
  recovery_.resume(journal, how);
}

std::int64_t ServerSnapshots::load(std::span<const step::NamedTensor> snapshot, const std::string& file) {
  return concurrent_.with([&](ps::Server& server) {
    const at::Tensor saved = step::saved_or_none(snapshot, kPrefix + "parameters");
    if (!saved.defined() || saved.numel() != server.length())
      throw ConfigError(fmt::format("{} does not have the {} parameters of server {}; restart the run with its original recipe", file,
                                    server.length(), settings_.cluster.index));
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
  const auto stem = recovery_.find_stem();
  if (!stem || concurrent_.with([&](ps::Server& server) { return server.version() == version_; })) recovery_.try_later();
  else return write(file_at(*stem));
  if (!stem)
    log::warning("server {} finds no folder of this run in {} and keeps no snapshot; let all hosts share train.runs", cluster.index,
                 cluster.runs);
}

void ServerSnapshots::write(const std::filesystem::path& file) {
  std::vector<step::NamedTensor> snapshot;
  std::optional<std::int64_t> journal;
  const std::int64_t version = concurrent_.with([&](ps::Server& server) {
    const ServerTensors tensors(server, at::kCPU);
    snapshot = tensors.save(kPrefix);
    snapshot.push_back({kPrefix + "parameters", tensors.parameters().clone()});
    journal = recovery_.snapshot_taken(snapshot, kPrefix);
    return server.version();
  });
  try {
    files_.write(file, snapshot);
    version_ = version;
    if (journal) recovery_.forget_before(*journal);
  } catch (const std::exception& problem) {
    log::error("no snapshot of server {} at version {}: {}; training goes on", settings_.cluster.index, version, problem.what());
  }
}

}  // namespace paceline::central
