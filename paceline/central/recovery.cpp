#include "paceline/central/recovery.h"

#include <ATen/ATen.h>

#include <thread>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/observe/run_folder.h"

namespace paceline::central {
namespace {

constexpr const char* kJournal = "bookkeeping.journal";
constexpr auto kLookForFolder = std::chrono::milliseconds(50);  // how often it looks for the run's folder

ConfigError no_folder(const ps::Cluster& cluster) {
  return ConfigError(fmt::format(
      "server {} found no folder of this run in {} for its snapshots and its journal (ps.replica); start it with paceline run, and "
      "let all hosts share train.runs",
      cluster.index, cluster.runs));
}

}  // namespace

std::optional<std::filesystem::path> ServerFiles::find_stem() const {
  const ps::Cluster& cluster = settings_.cluster;
  const auto folder = cluster.job.empty() ? std::nullopt : observe::RunFolder::find(cluster.runs, cluster.job);
  if (!folder) return std::nullopt;
  return folder->servers() / fmt::format("server-{}", cluster.index);
}

std::filesystem::path ServerFiles::await_stem() const {
  const Nanoseconds until = clock_.now() + settings_.ps.patience();
  for (;; std::this_thread::sleep_for(kLookForFolder)) {
    if (const auto stem = find_stem()) return *stem;
    if (clock_.now() >= until) throw no_folder(settings_.cluster);
  }
}

bool ServerFiles::restartable() const {
  return settings_.ps.snapshot_s > 0 && !settings_.cluster.job.empty() && settings_.cluster.max_restarts > 0;
}

Recovery::Recovery(const Settings& settings, ps::ConcurrentServer& concurrent, const Clock& clock, const Beginning& from)
    : settings_(settings), concurrent_(concurrent), clock_(clock), files_(settings, clock), last_(from.journal), before_(from.journal) {
  if (settings.ps.replica && settings.cluster.job.empty()) throw no_folder(settings.cluster);
  if (settings.ps.replica) journals_ = std::make_unique<ps::Journals>([files = files_] { return files.find_stem(); });
  if (from.state == Beginning::State::restarted) {
    replay(from);
    return;
  }
  if (journals_) {  // the first is written once the run's folder exists
    journals_->begin_with(from.journal);
    concurrent_.write_to(journals_->next());
  }
  if (from.state == Beginning::State::checkpoint) concurrent_.begin_again(/*knows_round=*/true);
}

void Recovery::replay(const Beginning& from) {
  std::string after = "later updates of its range are lost, and the other servers keep theirs";
  if (journals_) {
    const std::int64_t replayed = concurrent_.with([&](ps::Server& server) {
      const std::int64_t pushes = journals_->replay(server, from.journal, from.progress);
      concurrent_.write_to(journals_->next());
      return pushes;
    });
    after = fmt::format("{} later pushes were replayed from its journal, {}none is lost", replayed,
                        from.rest ? from.rest() + ", and " : "and ");
  }
  log::warning("server {} was restarted and {}; {}", settings_.cluster.index, from.how, after);
  concurrent_.begin_again(journals() || settings_.cluster.servers.size() == 1);
}

bool Recovery::snapshot_due() const {
  return settings_.ps.snapshot_s > 0 && !settings_.cluster.job.empty() && seconds(clock_.now() - taken_at_) >= settings_.ps.snapshot_s;
}

std::optional<std::int64_t> Recovery::snapshot_taken(std::vector<step::NamedTensor>& snapshot, const std::string& prefix) {
  taken_at_ = clock_.now();
  if (!journals_) return std::nullopt;
  concurrent_.write_to(journals_->next());
  snapshot.push_back({prefix + kJournal, at::tensor({journals_->number()}, at::kLong)});
  return last_ = journals_->number();
}

void Recovery::checkpoint_complete() {
  const std::int64_t before = std::exchange(before_, last_);
  if (journals_) forget_before(before);
}

std::int64_t journal_after(const Settings& settings, std::span<const step::NamedTensor> snapshot, const std::string& prefix) {
  const at::Tensor saved = step::saved_or_none(snapshot, prefix + kJournal);
  return settings.ps.replica && saved.defined() ? saved.item<std::int64_t>() : 0;
}

}  // namespace paceline::central
