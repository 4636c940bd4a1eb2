#include "paceline/central/recovery.h"

#include <ATen/ATen.h>

#include <thread>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"

namespace paceline::central {
namespace {

constexpr const char* kJournal = "bookkeeping.journal";
constexpr auto kLookForFolder = std::chrono::milliseconds(50);  // how often the run's folder is looked for

}  // namespace

const observe::RunFolder* Recovery::find_folder() {
  const ps::Cluster& cluster = settings_.cluster;
  if (!folder_ && !cluster.job.empty()) folder_ = observe::RunFolder::find(cluster.runs, cluster.job);
  return folder_ ? &*folder_ : nullptr;
}

const observe::RunFolder& Recovery::await_folder() {
  const ps::Cluster& cluster = settings_.cluster;
  const Nanoseconds until = clock_.now() + (cluster.job.empty() ? Nanoseconds(0) : settings_.ps.patience());
  while (!find_folder() && clock_.now() < until) std::this_thread::sleep_for(kLookForFolder);
  if (!find_folder())
    throw ConfigError(
        fmt::format("ps.replica=true: server {} finds no folder of this run in {}; start it with paceline run, and let all hosts share "
                    "train.runs",
                    cluster.index, cluster.runs));
  return *folder_;
}

std::filesystem::path Recovery::stem() const { return folder_->servers() / fmt::format("server-{}", settings_.cluster.index); }

void Recovery::begin() {
  if (!settings_.ps.replica || journals_) return;
  await_folder();
  journals_.emplace(stem());
  concurrent_.begin_journal(journals_->next());
}

void Recovery::resume(std::int64_t first, const std::string& how, const ps::Journal::Progress& progress,
                      const std::function<std::string()>& rest) {
  const bool durable = settings_.ps.replica;
  std::string after = "updates after it are lost in its range, and the other servers keep theirs";
  if (durable) {
    await_folder();
    journals_.emplace(stem());
    const std::int64_t replayed = concurrent_.with([&](ps::Server& server) {
      const std::int64_t pushes = journals_->replay(server, first, progress);
      concurrent_.write_to(journals_->next());
      return pushes;
    });
    after = fmt::format("{} pushes after it came from its journal, {}none is lost", replayed, rest ? rest() + ", and " : "and ");
  }
  log::warning("server {} was started again and {}; {}", settings_.cluster.index, how, after);
  concurrent_.begin_again(durable || settings_.cluster.servers.size() == 1);
}

bool Recovery::snapshot_due() const {
  return settings_.ps.snapshot_s > 0 && !settings_.cluster.job.empty() && seconds(clock_.now() - taken_at_) >= settings_.ps.snapshot_s;
}

std::optional<std::int64_t> Recovery::snapshot_taken(std::vector<step::NamedTensor>& snapshot, const std::string& prefix) {
  taken_at_ = clock_.now();
  if (!journals_) return std::nullopt;
  concurrent_.write_to(journals_->next());
  snapshot.push_back({prefix + kJournal, at::tensor({journals_->number()}, at::kLong)});
  return journals_->number();
}

std::int64_t Recovery::journal_after(std::span<const step::NamedTensor> snapshot, const std::string& prefix) const {
  return settings_.ps.replica ? step::find_saved(snapshot, prefix + kJournal).item<std::int64_t>() : 0;
}

}  // namespace paceline::central
