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
                                 const SavedServer* checkpoint)
    : settings_(settings),
      concurrent_(concurrent),
      files_(std::move(files)),
      recovery_(settings, concurrent, clock, begin(ServerFiles(settings, clock), checkpoint)) {
  const ServerFiles& places = recovery_.files();
  if (checkpoint && !restored_ && places.restartable()) write(file_at(places.await_stem()));
  if (recovery_.journals()) places.await_stem();  // before anything is acknowledged that belongs in a journal
}

Beginning ServerSnapshots::begin(const ServerFiles& places, const SavedServer* checkpoint) {
  const auto stem = places.find_stem();
  restored_ = settings_.cluster.restarts > 0 && (!checkpoint || (stem && std::filesystem::exists(file_at(*stem))));
  if (restored_) return restore(places);
  if (!checkpoint) return {};
  concurrent_.with([&](ps::Server& server) { ServerTensors(server, at::kCPU).load_anew(*checkpoint); });
  return {.state = Beginning::State::checkpoint};
}

Beginning ServerSnapshots::restore(const ServerFiles& places) {
  if (settings_.ps.snapshot_s == 0)
    throw Error(
        fmt::format("server {} was restarted, and with ps.snapshot_s=0 its parameters were lost; resume the run from its last "
                    "checkpoint",
                    settings_.cluster.index));
  const std::filesystem::path file = file_at(places.await_stem());  // the servers may have been killed before the folder was created
  Beginning from{.state = Beginning::State::restarted, .how = "starts from the beginning, since there was no snapshot yet"};
  if (std::filesystem::exists(file)) {
    from.journal = load(files_.read(file), file.string());
    const auto age = std::filesystem::file_time_type::clock::now() - std::filesystem::last_write_time(file);
    from.how = fmt::format("resumes from its snapshot of {:.1f} s ago, version {}", std::chrono::duration<double>(age).count(), version_);
  }
  return from;
}

std::int64_t ServerSnapshots::load(std::span<const step::NamedTensor> snapshot, const std::string& file) {
  return concurrent_.with([&](ps::Server& server) {
    const at::Tensor saved = step::saved_or_none(snapshot, kPrefix + "parameters");
    if (!saved.defined() || saved.numel() != server.length())
      throw ConfigError(fmt::format("{} does not have the {} parameters of server {}; restart the run with its original recipe", file,
                                    server.length(), settings_.cluster.index));
    const ServerTensors tensors(server, at::kCPU);
    tensors.load({snapshot, kPrefix});
    tensors.parameters().copy_(saved);
    version_ = server.version();
    return journal_after(settings_, snapshot, kPrefix);
  });
}

void ServerSnapshots::write_if_due() {
  if (!recovery_.snapshot_due()) return;
  const ps::Cluster& cluster = settings_.cluster;
  const auto stem = recovery_.files().find_stem();
  if (!stem || concurrent_.with([&](ps::Server& server) { return server.version() == version_; })) recovery_.postpone_snapshot();
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
    log::error("no snapshot of server {} at version {}: {}; training continues", settings_.cluster.index, version, problem.what());
  }
}

}  // namespace paceline::central
