// The state of a server in a checkpoint, and how another server restores it.
#include <algorithm>
#include <bit>
#include <utility>

#include "paceline/base/error.h"
#include "paceline/base/log.h"
#include "paceline/base/text.h"
#include "paceline/ps/server.h"

namespace paceline::ps {
namespace {

constexpr std::int64_t kMostCounted = std::int64_t{1} << 62;  // no run counts more of anything

}  // namespace

std::vector<Server::Array> Server::arrays() {
  std::vector<Array> result;
  const auto add = [&](std::string name, const std::shared_ptr<float[]>& memory, std::int64_t count) {
    if (memory && count > 0) result.push_back({std::move(name), memory.get(), count});
  };
  const auto names = optimizer_.state_names();
  for (std::size_t i = 0; i < state_.size(); ++i) add("optim." + names[i], state_[i], length());
  add("bookkeeping.previous", previous_, length());  // only if workers are restarted; a run is the same with and without it
  add("kept", kept_, length());
  add("kept_second", kept_second_, length());
  if (average_) {  // the checkpoint's model is the mean, so the parameters that training continues with are saved here
    add("average", average_, length());
    result.push_back({"own_parameters", parameters_, length()});
  }
  if (statistics_ && setup_.statistics > 0) result.push_back({"statistics", statistics_.get(), setup_.statistics, /*per_parameter=*/false});
  if (gathered_count_ > 0) add("gathered", gathered_, length());
  for (Array& held : round_.arrays()) result.push_back(std::move(held));
  for (std::size_t m = 0; m < workers_.size(); ++m) {
    add("pulled." + std::to_string(m), workers_[m].pulled, length());
    add(kKept + std::to_string(m), workers_[m].kept, length());
    add("answer." + std::to_string(m), workers_[m].answer, length());
  }
  return result;
}

// version, dropped, refused; staleness pairs (their number first); workers, the versions that they pulled, gathered, who did last, the bits
// of the last rate; the round's; the consistency's own.
std::vector<std::int64_t> Server::numbers() const {
  std::vector<std::int64_t> all = {version_, dropped_, refused_, static_cast<std::int64_t>(staleness_.size())};
  for (const auto& [staleness, count] : staleness_) all.push_back(staleness), all.push_back(count);
  all.push_back(std::ssize(workers_));
  for (const Worker& w : workers_) all.push_back(w.pulled_version);
  all.push_back(gathered_count_);
  all.push_back(last_gathered_);
  all.push_back(std::bit_cast<std::int32_t>(last_rate_));
  round_.save(all);
  for (const std::int64_t number : consistency_->save()) all.push_back(number);
  return all;
}

void Server::load(std::span<const std::int64_t> numbers, std::span<const UpdateRule::State> rule_state, InProgress progress) {
  const ConfigError damaged("the checkpoint's parameter server is damaged");
  std::size_t at = 0;
  const auto next = [&] {
    if (at >= numbers.size()) throw damaged;
    return numbers[at++];
  };
  const auto next_count = [&] {
    const std::int64_t count = next();
    if (count < 0 || count > kMostCounted) throw damaged;
    return count;
  };
  const std::int64_t version = next_count(), dropped = next_count(), refused = next_count();
  std::map<std::int64_t, std::int64_t> staleness;
  for (std::int64_t pairs = next_count(); pairs > 0; --pairs) {
    const std::int64_t steps = next_count();
    staleness[steps] = next_count();
  }
  std::vector<std::int64_t> pulled;
  for (std::int64_t workers = next_count(); workers > 0; --workers) pulled.push_back(next_count());
  // Other workers start over with the server's present parameters.
  const bool same_workers = std::ssize(pulled) == std::ssize(workers_) && progress != InProgress::left_out;
  const std::int64_t gathered_count = next_count(), last_gathered = next(), last_rate = next();
  auto rest = numbers.subspan(at);
  Round round = round_;
  if (!round.read(rest)) throw damaged;
  const std::int64_t waiting = gathered_count + round.pushed();  // gradients, for an update
  if (same_workers && waiting > 0 && progress != InProgress::present) throw damaged;
  const auto before = consistency_->save();
  if (same_workers) consistency_->load(rest);
  try {
    rule_->load(rule_state);
  } catch (const ConfigError&) {
    consistency_->load(before);
    throw;
  }
  version_ = version, dropped_ = dropped, refused_ = refused;
  staleness_ = std::move(staleness);
  if (!same_workers) {
    if (waiting > 0 && setup_.begin == 0)  // said once, by the first server
      log::warning("the checkpoint was written within a round: the {} that it had are left out, since the workers or servers are others",
                   plural(waiting, "gradient"));
    return;
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) workers_[i].pulled_version = pulled[i];
  gathered_count_ = gathered_count;
  round_ = std::move(round);
  last_gathered_ = static_cast<int>(std::clamp<std::int64_t>(last_gathered, 0, std::ssize(workers_) - 1));
  last_rate_ = std::bit_cast<float>(static_cast<std::int32_t>(last_rate));
  if (waiting > 0 && !gathered_) gathered_ = setup_.allocate(length());
}

void Server::forget_kept(float* kept) {
  if (!rule_->needs().kept_of_worker) return;
  Worker gone;
  gone.kept = {kept, [](float*) {}};
  rule_->forget(slice(0, length(), true, kept, gone));
}

// The ledger, then for each worker the sequence number of its kept answer.
std::vector<std::int64_t> Server::ledger() const {
  std::vector<std::int64_t> all;
  if (ledger_.empty()) return all;
  ledger_.save(all);
  for (const Worker& w : workers_) all.push_back(w.answer ? w.answered : 0);
  return all;
}

void Server::load_ledger(std::span<const std::int64_t> saved) {
  if (saved.empty()) return;
  ledger_.load(saved);
  for (std::size_t m = 0; m < saved.size(); ++m) {
    if (saved[m] == 0 || std::cmp_greater_equal(m, setup_.workers))
      continue;  // nobody will ask for what was answered to a worker that is gone
    Worker& answered = worker(static_cast<int>(m));
    answered.answered = saved[m];
    if (!answered.answer) answered.answer = setup_.allocate(length());
  }
}

}  // namespace paceline::ps
