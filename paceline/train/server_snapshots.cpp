#include "paceline/train/server_snapshots.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/central/server_tensors.h"

namespace paceline::train {
namespace {

const std::string kPrefix = "ps.";
constexpr auto kLookForFolder = std::chrono::milliseconds(50);  // how often the run's folder is looked for

}  // namespace

ServerSnapshots::ServerSnapshots(const Recipe& recipe, const ps::Cluster& cluster, ps::Host& host)
    : recipe_(recipe), cluster_(cluster), host_(host), written_at_(clock_.now()) {}

std::filesystem::path ServerSnapshots::stem() const { return folder_->servers() / fmt::format("server-{}", cluster_.index); }
std::filesystem::path ServerSnapshots::file() const { return stem().string() + ".safetensors"; }

bool ServerSnapshots::find_folder() {
  if (!folder_ && !cluster_.job.empty()) folder_ = observe::RunFolder::find(cluster_.runs, cluster_.job);
  return folder_.has_value();
}

void ServerSnapshots::await_folder() {
  for (const Nanoseconds until = clock_.now() + recipe_.ps.patience(); !find_folder() && clock_.now() < until;)
    std::this_thread::sleep_for(kLookForFolder);
  if (!find_folder())
    throw ConfigError(
        fmt::format("ps.replica=true: server {} finds no folder of this run in {}; start it with paceline run, and let all "
                    "hosts share train.runs",
                    cluster_.index, cluster_.runs));
}

ps::Journals& ServerSnapshots::open_journals() {
  await_folder();
  return journals_.emplace(stem());
}

void ServerSnapshots::begin() {
  if (recipe_.ps.replica) host_.write_to(open_journals().next());
}

void ServerSnapshots::restore() {
  if (recipe_.ps.snapshot_s == 0)
    throw Error(fmt::format(
        "server {} was started again, and with ps.snapshot_s=0 its parameters went with the one before; begin the run anew from "
        "its last checkpoint with model.weights=…",
        cluster_.index));
  if (recipe_.ps.replica) await_folder();  // the servers may have been killed before it was created
  if (!find_folder())
    throw ConfigError(fmt::format("server {} was started again and finds no folder of this run in {}; let all hosts share train.runs",
                                  cluster_.index, cluster_.runs));
  std::string how = "begins anew, since there was no snapshot yet";
  std::int64_t journal = 0;
  if (std::filesystem::exists(file())) {
    journal = load(read_checkpoint(file()));
    const auto age = std::filesystem::file_time_type::clock::now() - std::filesystem::last_write_time(file());
    how = fmt::format("goes on with version {}, its snapshot of {:.1f} s ago", version_, std::chrono::duration<double>(age).count());
  }
  std::string rest = "updates after it are lost in its range, and the other servers keep theirs";
  if (recipe_.ps.replica) {
    const std::int64_t replayed = host_.with([&](ps::Server& server) { return open_journals().replay(server, journal); });
    rest = fmt::format("{} pushes after it came from its journal, and none is lost", replayed);
    host_.write_to(journals_->next());
  }
  log::warning("server {} was started again and {}; {}", cluster_.index, how, rest);
  host_.begin_again(recipe_.ps.replica);
}

std::int64_t ServerSnapshots::load(const Checkpoint& snapshot) {
  const auto find = [&](const std::string& name) { return std::ranges::find(snapshot.tensors, kPrefix + name, &NamedTensor::name); };
  return host_.with([&](ps::Server& server) {
    const auto saved = find("parameters"), journal = find("journal");
    if (saved == snapshot.tensors.end() || saved->tensor.numel() != server.length())
      throw ConfigError(fmt::format("{} is not of the {} parameters that server {} has; start the run again with the recipe that it had",
                                    file().string(), server.length(), cluster_.index));
    central::ServerTensors(server, at::kCPU).load(snapshot.tensors, kPrefix);
    central::ServerTensors(server, at::kCPU).parameters().copy_(saved->tensor);
    version_ = server.version();
    return journal == snapshot.tensors.end() ? 0 : journal->tensor.item<std::int64_t>();
  });
}

void ServerSnapshots::write_if_due() {
  const double period = recipe_.ps.snapshot_s;
  if (period == 0 || cluster_.job.empty() || seconds(clock_.now() - written_at_) < period) return;
  written_at_ = clock_.now();
  if (!find_folder())
    return log::warning("server {} finds no folder of this run in {} and keeps no snapshot; let all hosts share train.runs", cluster_.index,
                        cluster_.runs);
  Checkpoint snapshot{.position = {}, .recipe = {}, .network = recipe_.model.network, .tensors = {}};
  const std::int64_t version = host_.with([&](ps::Server& server) {
    if (server.version() == version_) return version_;
    snapshot.tensors = central::ServerTensors(server, at::kCPU).save(kPrefix);
    snapshot.tensors.push_back({kPrefix + "parameters", central::ServerTensors(server, at::kCPU).parameters().clone()});
    if (journals_) {
      host_.write_to(journals_->next());
      snapshot.tensors.push_back({kPrefix + "journal", at::tensor({journals_->number()}, at::kLong)});
    }
    return server.version();
  });
  if (snapshot.tensors.empty()) return;  // as it was
  try {
    write_checkpoint(file(), snapshot);
    version_ = version;
    if (journals_) journals_->forget_before(journals_->number());
  } catch (const std::exception& problem) {
    log::error("no snapshot of server {} at version {}: {}; training goes on", cluster_.index, version, problem.what());
  }
}

}  // namespace paceline::train
