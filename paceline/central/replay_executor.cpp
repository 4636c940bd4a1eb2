// Replays a recorded run: every worker visits the server in the recorded order, with the minibatches that it had. So the server gets the
// same pushes, computed at the same versions, and ends with the same bits if the arithmetic is the same (train.threads, the device).
//
// Minibatches arrive in the order in which they were assigned, and pulls in another: a minibatch waits for its turn. Whatever can happen
// happens immediately, so that nothing is still in flight that the recorded run had finished.
#include <algorithm>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/central/virtual_executor.h"
#include "paceline/ps/timing_trace.h"

namespace paceline::central {
namespace {

struct Minibatch {
  int worker = 0;
  ps::Visit visit;
  step::Batch batch = {};  // while it waits
  step::Point point = {};
  bool dealt = false, computed = false;
};

class ReplayExecutor final : public VirtualExecutor {
 public:
  ReplayExecutor(const step::Context& given, const Settings& given_settings) : VirtualExecutor(given, given_settings) {
    const auto recorded = ps::recorded_visits(settings().timing, workers());
    for (std::size_t worker = 0; worker < recorded.size(); ++worker)
      for (const ps::Visit& visit : recorded[worker]) minibatches_.push_back({.worker = static_cast<int>(worker), .visit = visit});
    std::ranges::sort(minibatches_, {}, [](const Minibatch& one) { return one.visit.minibatch; });
    first_ = minibatches_.front().visit.minibatch;
    own_.resize(recorded.size());
    for (std::size_t i = 0; i < minibatches_.size(); ++i) {
      const ps::Visit& visit = minibatches_[i].visit;
      for (const std::int64_t number : {visit.pulled, visit.reported, visit.pushed}) {
        if (number == 0) continue;
        events_.resize(std::max(events_.size(), static_cast<std::size_t>(number)));
        events_[static_cast<std::size_t>(number) - 1] = i;
      }
    }
    for (std::size_t worker = 0; worker < recorded.size(); ++worker)
      for (const ps::Visit& visit : recorded[worker]) own_[worker].push_back(static_cast<std::size_t>(visit.minibatch - first_));
  }

  step::StepResult step(const step::Batch& batch, const step::Point& point) override {
    server().use_stream(tensor::current_stream(module().device()));
    const std::int64_t number = point.step - 1 - first_;
    if (number < 0 || number >= std::ssize(minibatches_))
      throw ConfigError(
          fmt::format("timing.trace: the recorded run has the minibatches {} to {}, but this one reaches {}; record a run of the same "
                      "length, or use timing.distribution=durations",
                      first_ + 1, first_ + std::ssize(minibatches_), point.step));
    Minibatch& dealt = minibatches_[static_cast<std::size_t>(number)];
    dealt.batch = {batch.inputs.clone(), batch.targets.clone(), batch.global_samples};  // the feed reuses its memory
    dealt.point = point, dealt.dealt = true;
    if (!done_.defined()) done_ = at::zeros({2}, at::TensorOptions().dtype(at::kDouble).device(batch.inputs.device()));
    while (go_on_between_visits() || next_event()) {
    }
    step::StepResult result{done_.clone(), targets_};
    done_.zero_(), targets_ = 0;
    return result;
  }

  void load(std::span<const step::NamedTensor>) override {
    throw ConfigError("a replayed run cannot be resumed; start it again with its timing.trace");
  }

 private:
  /// Computes minibatches that begin without a pull, in the middle of a worker's period. Returns true if there were any.
  bool go_on_between_visits() {
    bool any = false;
    for (auto& own : own_)
      for (; !own.empty() && minibatches_[own.front()].dealt && minibatches_[own.front()].visit.pulled == 0; any = true) compute_next(own);
    return any;
  }

  /// Returns true if the event has happened.
  bool next_event() {
    if (at_ == events_.size()) return false;
    const std::int64_t number = static_cast<std::int64_t>(at_) + 1;
    const Minibatch& one = minibatches_[events_[at_]];
    if (number == one.visit.pulled ? !one.dealt : !one.computed) return false;
    ++at_;
    if (number == one.visit.pulled) {
      if (server().cancelled(one.worker)) player(one.worker).local.call_off();  // the worker stopped
      auto& own = own_[static_cast<std::size_t>(one.worker)];
      if (!server().may_pull(one.worker) || own.front() != events_[at_ - 1]) refuse(one);
      compute_next(own);
      return true;
    }
    loop().advance_to(std::max(loop().now(), loop().event(static_cast<std::size_t>(one.worker)).due));
    if (number == one.visit.reported) report(one.worker);
    else push(one.worker);
    return true;
  }

  void compute_next(std::deque<std::size_t>& own) {
    Minibatch& one = minibatches_[own.front()];
    own.pop_front();
    if (player(one.worker).local.visits() != (one.visit.pulled > 0)) refuse(one);
    place_.copy_from(one.batch);
    one.batch = {};
    if (!compute(one.worker, place_, one.point) && one.visit.reported > 0) refuse(one);
    one.computed = true;
    done_.add_(sums()), targets_ += place_.targets.numel();
  }

  [[noreturn]] static void refuse(const Minibatch& one) {
    throw ConfigError(fmt::format(
        "timing.trace: this strategy does not let worker {} proceed with minibatch {} as in the recorded run; replay it with the "
        "[strategy] and [ps] that it had, or use timing.distribution=durations",
        one.worker, one.visit.minibatch + 1));
  }

  std::vector<Minibatch> minibatches_;        // by number
  std::vector<std::size_t> events_;           // the minibatch of each event
  std::vector<std::deque<std::size_t>> own_;  // by worker: what it still has to compute
  std::int64_t first_ = 0;                    // minibatch
  std::size_t at_ = 0;                        // next event
  step::Batch place_;
  at::Tensor done_;  // [2]: sums since they were last read
  std::int64_t targets_ = 0;
};

}  // namespace

std::unique_ptr<Central> make_replay_executor(const step::Context& context, const Settings& settings) {
  return std::make_unique<ReplayExecutor>(context, settings);
}

}  // namespace paceline::central
