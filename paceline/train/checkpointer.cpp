#include "paceline/train/checkpointer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/train/shared_folder.h"
#include "paceline/train/tensor_file.h"

namespace paceline::train {
namespace {

constexpr std::int64_t kLeastShard = 4 << 20;                      // bytes: a smaller part is not worth its own file and sync
constexpr Nanoseconds kAskOthers = std::chrono::milliseconds(20);  // how often other processes are asked whether their parts are on disk
constexpr double kFailed = 1e6;                                    // added to the workers' sum: more than the number of workers

bool is_ready(const auto& future) { return future.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

}  // namespace

Checkpointer::Checkpointer(comm::Communicator& comm, observe::Bus& bus, const Clock& clock, const std::filesystem::path& run,
                           const Settings& settings)
    : comm_(comm),
      bus_(bus),
      clock_(clock),
      keep_(settings.keep),
      pace_(settings.share, seconds(clock.now()), settings.guess),
      run_(settings.writes ? tell_folder(comm, run) : run) {
  if (!settings.writes) return;
  if (leads()) remove_unfinished(folder());  // nobody writes yet
  writers_ = who_sees(comm_, folder());
}

std::filesystem::path Checkpointer::place() const {
  return pending_->shards == 1 ? checkpoint_file(folder(), pending_->step) : checkpoint_folder(folder(), pending_->step);
}

// All workers know who holds what, so they reach the same result. Replicated parts are divided among their holders in order, by bytes.
std::vector<NamedTensor> Checkpointer::own_part(std::span<const NamedTensor> tensors, const std::vector<HeldTensor>& holdings,
                                                std::size_t others, std::size_t& shards) const {
  std::map<std::vector<int>, std::int64_t> alike, passed;  // bytes, by holders
  for (const HeldTensor& tensor : holdings)
    for (const HeldPart& part : tensor.parts) alike[part.holders] += part.bytes;
  bool one_file = true;
  std::vector<NamedTensor> own;
  for (const HeldTensor& tensor : holdings)
    for (const HeldPart& part : tensor.parts) {
      std::vector<int> writers;
      std::ranges::set_intersection(part.holders, writers_, std::back_inserter(writers));
      if (writers.empty()) writers = {part.holders.front()};  // it cannot write, which raises an alarm
      const std::int64_t all = alike[part.holders], middle = passed[part.holders] + part.bytes / 2;
      passed[part.holders] += part.bytes;
      const std::int64_t sharing = std::clamp<std::int64_t>(all / kLeastShard, 1, std::ssize(writers));
      const int writer = writers[static_cast<std::size_t>(all > 0 ? middle * sharing / all : 0)];
      one_file = one_file && writer == 0 && part.shape == tensor.shape;
      if (writer == comm_.rank()) own.push_back(tensors[*part.own]);
    }
  shards = one_file ? 1 : static_cast<std::size_t>(comm_.size()) + others;
  return own;
}

void Checkpointer::begin(const CheckpointMetadata& metadata, std::span<const NamedTensor> tensors, bool good,
                         const std::shared_ptr<OtherParts>& others) {
  finish();
  Pending& made = pending_.emplace();
  made.step = metadata.position.step, made.run = metadata, made.began = clock_.now(), made.good = good;
  const std::vector<HeldTensor> holdings = others ? holdings_of(tensors, others->reports()) : gather_holdings(tensors, comm_);
  for (const HeldTensor& tensor : holdings) made.tensors.push_back({.name = tensor.name, .shape = tensor.shape});
  auto copy = std::make_unique<const ShardCopy>(own_part(tensors, holdings, others ? others->count() : 0, made.shards));
  pace_.begun(seconds(made.began));

  const bool alone = made.shards == 1, sees = std::ranges::find(writers_, comm_.rank()) != writers_.end();
  if (alone && !leads()) {
    made.written.emplace();
    return;
  }
  const auto file = alone ? place() : place() / shard_file(static_cast<std::size_t>(comm_.rank()), made.shards);
  if (others && !alone) {
    std::error_code seen_by_the_writers;
    std::filesystem::create_directories(place(), seen_by_the_writers);
    made.others = others;
    made.others->write(place(), made.shards);
  }
  const MakeFolder folder = sees ? MakeFolder::yes : MakeFolder::no;
  const auto as_whole = [metadata](const ShardCopy& whole) { return pack_metadata(metadata, whole.host.views()); };
  made.part = alone ? write_in_background(clock_, file, folder, std::move(copy), as_whole)
                    : write_in_background(clock_, file, folder, std::move(copy));
}

bool Checkpointer::part_is_there() {
  if (!pending_->written && is_ready(pending_->part)) pending_->written = pending_->part.get();
  return pending_->written.has_value();
}

bool Checkpointer::parts_are_there(bool wait) {
  if (pending_->problem) return true;
  if (wait && !pending_->written) pending_->part.wait();
  if (!part_is_there()) return false;
  if (!pending_->others || !pending_->written->problem.empty()) {
    pending_->problem = pending_->written->problem;
  } else if (wait || clock_.now() - pending_->asked >= kAskOthers) {
    pending_->problem = pending_->others->outcome(wait);
    pending_->asked = clock_.now();
  }
  return pending_->problem.has_value();
}

// A worker is slowed down by as much as its writer takes from it, all the more where workers have no core each; and all wait for it.
void Checkpointer::charge(double cpu_s, double writers) {
  const double cores = std::max(std::thread::hardware_concurrency(), 1U);
  pace_.spent(cpu_s / std::max(writers, 1.0) * std::max(comm_.topology().per_host / cores, 1.0));
  total_.writer_s += cpu_s;
}

Checkpointer::Progress Checkpointer::progress() {
  if (!pending_ || pending_->concluded || !parts_are_there(/*wait=*/false)) return {};
  const double cpu_s = pending_->written->cpu_s;
  return {.parts = pending_->problem->empty() ? 1 : 1 + kFailed, .writers = cpu_s > 0 ? 1.0 : 0.0, .cpu_s = cpu_s};
}

void Checkpointer::heard(const Progress& sum) {
  if (pruning_.valid() && is_ready(pruning_)) charge(pruning_.get(), 1);
  if (!pending_ || pending_->result) return;
  if (!pending_->concluded && std::fmod(sum.parts, kFailed) == comm_.size()) conclude(sum);
  if (pending_->all && !pending_->result && is_ready(*pending_->all)) pending_->result = take_index();
}

void Checkpointer::conclude(const Progress& sum) {
  pending_->concluded = true;
  charge(sum.cpu_s, sum.writers);
  pace_.wrote(pending_->written->seconds);
  if (sum.parts >= kFailed) return lose();
  if (pending_->shards == 1) pending_->result = !leads() || take_outcome(*pending_->written);
  else if (leads()) write_index();
}

void Checkpointer::write_index() {
  const auto work = [folder = place(), shards = pending_->shards, run = pending_->run, tensors = std::move(pending_->tensors),
                     &clock = clock_]() mutable {
    Written outcome;
    const Nanoseconds began = clock.now();
    const double before = thread_cpu_s();
    try {
      const CheckpointIndex index = index_shards(folder, shards, run, std::move(tensors));
      outcome.bytes = write_atomically(folder / kIndexFile, pack_index(index)).bytes;
      for (const CheckpointIndex::Shard& shard : index.shards) outcome.bytes += shard.bytes;
      sync_folder(folder.parent_path());
    } catch (const std::exception& problem) {
      outcome.problem = problem.what();
    }
    outcome.cpu_s = thread_cpu_s() - before;
    outcome.seconds = seconds(clock.now() - began);
    return outcome;
  };
  pending_->all = std::async(std::launch::async, std::move(work));
}

// Worker 0 reports which worker could not write, and why. The shards of the others are useless then.
void Checkpointer::lose() {
  const std::vector<std::string> problems = gather_texts(comm_, *pending_->problem);
  for (std::size_t rank = 0; leads() && rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    alarm(comm_.size() > 1 ? fmt::format("worker {}: {}", rank, problems[rank]) : problems[rank]);
    break;
  }
  if (pending_->shards > 1) remove_checkpoint(place());
  pending_->lost = true, pending_->result = false;
}

// At the end of a run it is tried again; a second failure is not reported.
void Checkpointer::alarm(const std::string& problem) {
  if (std::exchange(alarmed_step_, pending_->step) != pending_->step)
    log::error("no checkpoint at step {}: {}; training continues", pending_->step, problem);
}

bool Checkpointer::take_outcome(const Written& outcome) {
  if (!outcome.problem.empty()) {
    alarm(outcome.problem);
    return false;
  }
  ++total_.written;
  last_ = place();
  bus_.emit(observe::CheckpointWritten{pending_->step, place().string(), outcome.bytes, clock_.now() - pending_->began});
  if (pending_->good) prune(place());
  return true;
}

bool Checkpointer::take_index() {
  const Written index = pending_->all->get();
  charge(index.cpu_s, 1);
  pace_.wrote(index.seconds);
  return take_outcome(index);
}

// In the background: a file system may take a while to remove large files.
void Checkpointer::prune(const std::filesystem::path& written) {
  if (pruning_.valid()) charge(pruning_.get(), 1);
  pruning_ = std::async(std::launch::async, [written, keep = keep_] {
    const double before = thread_cpu_s();
    prune_checkpoints(written, keep);
    return thread_cpu_s() - before;
  });
}

void Checkpointer::accept(std::int64_t step) {
  if (pending_ && !pending_->result) {  // older ones will be removed once it is complete
    pending_->good = true;
    return;
  }
  const auto parts = checkpoint_folder(folder(), step);
  std::error_code none;
  prune(std::filesystem::is_directory(parts, none) ? parts : checkpoint_file(folder(), step));
}

// There is no deadline here: a disk may be slow.
bool Checkpointer::finish() {
  if (pending_) {
    if (!pending_->concluded) {
      parts_are_there(/*wait=*/true);
      const Progress own = progress();
      std::vector<double> sum = {own.parts, own.writers, own.cpu_s};
      if (comm_.size() > 1) comm_.run(comm::allreduce(sum, {.deadline = comm::kUntilTheEnd}));
      conclude({.parts = sum[0], .writers = sum[1], .cpu_s = sum[2]});
    }
    if (pending_->shards > 1 && !pending_->lost) {
      if (pending_->all && !pending_->result) pending_->result = take_index();
      std::vector<std::int32_t> good = {pending_->result.value_or(false) ? 1 : 0};
      comm_.run(comm::broadcast(good, {.deadline = comm::kUntilTheEnd}));
      pending_->result = good[0] != 0;
    }
    last_good_ = *pending_->result;
    pending_.reset();
  }
  if (pruning_.valid()) charge(pruning_.get(), 1);
  return last_good_;
}

Checkpointer::Wish Checkpointer::wish() const {
  const double now = seconds(clock_.now());
  if (pending_ && !pending_->result) return pace_.limited() ? Wish::none : Wish::at_epoch;  // its cost is not known yet
  return pace_.due(now) ? Wish::now : pace_.affordable(now) ? Wish::at_epoch : Wish::none;
}

}  // namespace paceline::train
