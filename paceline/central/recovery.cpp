#include "paceline/central/recovery.h"

#include <ATen/ATen.h>

#include <thread>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/observe/run_folder.h"

namespace paceline::central {
namespace {

constexpr const char* kJournal = "bookkeeping.journal";
constexpr auto kLookForFolder = std::chrono::milliseconds(50);  // how often the run's folder is looked for

ConfigError no_folder(const ps::Cluster& cluster) {
  return ConfigError(fmt::format(
      "server {} finds no folder of this run in {}, for its snapshots and its journal (ps.replica); start it with paceline run, "
      "and let all hosts share train.runs",
      cluster.index, cluster.runs));
}

}  // namespace

Recovery::Recovery(const Settings& settings, ps::ConcurrentServer& concurrent, const Clock& clock)
    : settings_(settings),
      concurrent_(concurrent),
      clock_(clock),
      journals_(settings.ps.replica ? std::make_unique<ps::Journals>([this] { return find_stem(); }) : nullptr) {
  if (journals_ && settings.cluster.job.empty()) throw no_folder(settings.cluster);
}

std::optional<std::filesystem::path> Recovery::find_stem() const {
  const ps::Cluster& cluster = settings_.cluster;
  const auto folder = cluster.job.empty() ? std::nullopt : observe::RunFolder::find(cluster.runs, cluster.job);
  if (!folder) return std::nullopt;
  return folder->servers() / fmt::format("server-{}", cluster.index);
}

std::filesystem::path Recovery::await_stem() const {
  const Nanoseconds until = clock_.now() + settings_.ps.patience();
  for (;; std::this_thread::sleep_for(kLookForFolder)) {
    if (const auto stem = find_stem()) return *stem;
    if (clock_.now() >= until) throw no_folder(settings_.cluster);
  }
}

bool Recovery::restartable() const {
  return settings_.ps.snapshot_s > 0 && !settings_.cluster.job.empty() && settings_.cluster.max_restarts > 0;
}

void Recovery::begin(std::int64_t first) {
  if (!journals_) return;
  journals_->begin_with(first);
  concurrent_.write_to(journals_->next());
}

void Recovery::begin_with_checkpoint(std::int64_t first) {
  begin(first);
  concurrent_.begin_again(/*knows_round=*/true);
}

void Recovery::resume(std::int64_t first, const std::string& how, const ps::Journal::Progress& progress,
                      const std::function<std::string()>& rest) {
  std::string after = "updates after it are lost in its range, and the other servers keep theirs";
  if (journals_) {
    const std::int64_t replayed = concurrent_.with([&](ps::Server& server) {
      const std::int64_t pushes = journals_->replay(server, first, progress);
      concurrent_.write_to(journals_->next());
      return pushes;
    });
    after = fmt::format("{} pushes after it came from its journal, {}none is lost", replayed, rest ? rest() + ", and " : "and ");
  }
  log::warning("server {} was started again and {}; {}", settings_.cluster.index, how, after);
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
  return journals_->number();
}

std::int64_t Recovery::journal_after(std::span<const step::NamedTensor> snapshot, const std::string& prefix) const {
  const at::Tensor saved = step::saved_or_none(snapshot, prefix + kJournal);
  return journals_ && saved.defined() ? saved.item<std::int64_t>() : 0;
}

}  // namespace paceline::central
