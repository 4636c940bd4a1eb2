#include "step_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace paceline::train {
namespace {

using schedule::Action;

constexpr std::chrono::seconds kPatience{60};    // for what a step that follows its program does at once
constexpr std::chrono::microseconds kTurn{300};  // for threads that do not keep to the program to show it

bool is_pass(const Action& action) {
  return action.kind == Action::Kind::compute && action.work >= Action::Work::forward && action.work <= Action::Work::weight_gradients;
}

/// An operation in flight whose end is waited for in the order of the step.
class RecordedWork final : public comm::Work::State {
 public:
  RecordedWork(comm::Work work, StepRecord& record, std::string lane, std::string text)
      : work_(std::move(work)), record_(record), lane_(std::move(lane)), text_(std::move(text)) {}
  bool done() override { return work_.done(); }
  void wait() override {
    if (!text_.empty()) record_.event("wait for " + std::exchange(text_, {}));
    work_.wait();
    if (!lane_.empty()) record_.ended(std::exchange(lane_, {}));
  }
  void abandon() override { work_.abandon(); }

 private:
  comm::Work work_;
  StepRecord& record_;
  std::string lane_, text_;  // empty: nothing is to be said
};

}  // namespace

std::string pass_text(Action::Work work, std::size_t unit, std::size_t micro_batch) {
  return fmt::format("{} of unit {}, micro-batch {}", name_of(work), unit, micro_batch);
}

std::string operation_text(std::string_view axis, std::string_view operation, std::int64_t bytes) {
  return fmt::format("{} {} {} B", axis, operation, bytes);
}

StepOrder order_of(const schedule::Program& program, bool lanes_are_threads) {
  StepOrder order;
  LaneCounts left, ended;
  std::vector<std::pair<std::string, std::string>> places(program.size());  // by action: its lane, where it has one, and its text
  std::vector<std::size_t> counts(program.size());                          // operations of its lane so far
  const auto add = [&](const std::string& text, bool passes) { order.thread.push_back({text, passes, left, ended}); };
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Action& action = program[i];
    const bool beside = action.lane == Action::Lane::gather || action.lane == Action::Lane::exchange;
    auto& [lane, text] = places[i];
    if (beside) lane = fmt::format("{} {}", name_of(Action::Axis::data), name_of(action.lane));
    if (action.kind == Action::Kind::communicate) {
      const auto bytes = static_cast<std::int64_t>(static_cast<double>(action.elements) * action.element_bytes);
      text = operation_text(name_of(action.axis), name_of(action.exchange), bytes);
      if (beside) order.lanes[lane].push_back(text), ++left[lane];
      else add(text, false);
    } else if (is_pass(action)) {
      for (int unit = 0; unit < action.last - action.first; ++unit) {
        const int at = action.work == Action::Work::forward ? action.first + unit : action.last - 1 - unit;
        add(pass_text(action.work, static_cast<std::size_t>(at), static_cast<std::size_t>(action.micro_batch)), true);
      }
    }
    if (beside) counts[i] = left[lane];
    if (action.kind != Action::Kind::wait) continue;
    for (const int before : action.after) {
      const auto& [waited, what] = places[static_cast<std::size_t>(before)];
      const bool begun = waited.empty() || (program[static_cast<std::size_t>(before)].lane == Action::Lane::exchange && !lanes_are_threads);
      if (begun) add("wait for " + what, false);
      else ended[waited] = std::max(ended[waited], counts[static_cast<std::size_t>(before)]);
    }
  }
  add("the step's end", true);
  return order;
}

void StepRecord::begin_step(StepOrder order, Pace pace) {
  const std::lock_guard lock(mutex_);
  order_ = std::move(order), pace_ = pace, astray_ = pace == Pace::freely, records_ = true;
  events_.clear(), lanes_.clear(), left_.clear(), ended_.clear(), micro_batches_.clear();
}

void StepRecord::end_step() {
  event("the step's end", /*is_pass=*/true);
  records_ = false;
}

std::vector<std::string> StepRecord::thread() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void StepRecord::pass(Action::Work work, std::size_t unit, std::uint64_t chance) {
  if (records()) event(pass_text(work, unit, micro_batches_.try_emplace(chance, micro_batches_.size()).first->second), /*is_pass=*/true);
}

void StepRecord::event(const std::string& text, bool is_pass) {
  std::unique_lock lock(mutex_);
  if (!records_) return;
  if (events_.size() >= order_.thread.size() || order_.thread[events_.size()].text != text) astray_ = true;
  if (!astray_) {
    const StepEvent& next = order_.thread[events_.size()];
    if (pace_ == Pace::lanes_soon && is_pass) {
      const auto have_left = [&] {
        return std::ranges::all_of(next.left, [&](const auto& lane) { return left_[lane.first] >= lane.second; });
      };
      const bool in_time = changed_.wait_for(lock, kPatience, have_left);
      astray_ = !in_time;  // it is not kept waiting again
      lock.unlock();
      std::this_thread::sleep_for(kTurn);
      lock.lock();
      for (const auto& [lane, count] : left_)
        if (const auto said = next.left.find(lane); !in_time || count != (said == next.left.end() ? 0 : said->second))
          faults_.push_back(fmt::format("{} operations of {} had left before {}", count, lane, text));
    }
    for (const auto& [lane, count] : next.ended)
      if (ended_[lane] < count) faults_.push_back(fmt::format("{} came before operation {} of {} had ended", text, count, lane));
  }
  events_.push_back(text);
  changed_.notify_all();
}

std::size_t StepRecord::first_that_waits(const std::string& lane, std::size_t number) const {
  const auto waits = [&](const StepEvent& event) {
    const auto found = event.ended.find(lane);
    return found != event.ended.end() && found->second >= number;
  };
  const auto found = std::ranges::find_if(order_.thread, waits);
  return static_cast<std::size_t>((found == order_.thread.end() ? found - 1 : found) - order_.thread.begin());  // or the step's end
}

void StepRecord::leaves(const std::string& lane, const std::string& text, bool can_wait) {
  std::unique_lock lock(mutex_);
  if (!records_) return;
  lanes_[lane].push_back(text);
  const std::size_t number = ++left_[lane];
  changed_.notify_all();
  if (pace_ != Pace::lanes_late || !can_wait) return;
  const std::size_t before = first_that_waits(lane, number);
  if (!changed_.wait_for(lock, kPatience, [&] { return astray_ || events_.size() >= before; })) {
    faults_.push_back(fmt::format("operation {} of {} was waited for before {}", number, lane, order_.thread[before].text));
    astray_ = true;
    changed_.notify_all();
  }
  lock.unlock();
  std::this_thread::sleep_for(kTurn);
}

void StepRecord::ended(const std::string& lane) {
  const std::lock_guard lock(mutex_);
  if (records_) ++ended_[lane];
}

nn::Tensors RecordedModel::run(nn::Units range, nn::Tensors inputs, const nn::Pass& pass, nn::Trace* trace) {
  nn::UnitHooks hooks = pass.hooks ? *pass.hooks : nn::UnitHooks{};
  hooks.before_forward = [this, &pass, given = hooks.before_forward](std::size_t unit) {
    if (given) given(unit);
    record_.pass(Action::Work::forward, unit, pass.chance);
  };
  nn::Pass recorded = pass;
  recorded.hooks = &hooks;
  return inner_->run(range, std::move(inputs), recorded, trace);
}

nn::Tensors RecordedModel::back(nn::Units range, nn::Tensors gradients, const nn::Pass& pass, nn::Trace& trace, const nn::Wanted& wanted,
                                const nn::GradientReady& ready) {
  nn::UnitHooks hooks = pass.hooks ? *pass.hooks : nn::UnitHooks{};
  hooks.before_backward = [this, &pass, &wanted, given = hooks.before_backward](std::size_t unit) {
    if (given) given(unit);
    record_.pass(wanted.weights ? Action::Work::backward : Action::Work::input_gradients, unit, pass.chance);
  };
  nn::Pass recorded = pass;
  recorded.hooks = &hooks;
  return inner_->back(range, std::move(gradients), recorded, trace, wanted, ready);
}

void RecordedModel::weight_gradients(nn::Units range, const nn::Pass& pass, nn::Trace& trace, const nn::GradientReady& ready) {
  for (std::size_t unit = range.last; unit-- > range.first;) {
    record_.pass(Action::Work::weight_gradients, unit, pass.chance);
    inner_->weight_gradients({unit, unit + 1}, pass, trace, ready);
  }
}

RecordedGroup GroupNames::name(const std::vector<int>& ranks) {
  const int all = sizes_.data * sizes_.pipeline * sizes_.tensor, longest = std::max({sizes_.data, sizes_.pipeline, sizes_.tensor});
  const bool everybody = std::ssize(ranks) == all && longest < all;  // of whom every axis is a part
  if (ranks.size() < 2 || everybody) return {};
  const int apart = ranks[1] - ranks[0];  // as comm::Mesh numbers the ranks of one host
  const std::string axis = apart < sizes_.tensor ? "tensor" : apart < sizes_.tensor * sizes_.data ? "data" : "pipeline";
  return {.axis = axis, .lane = axis + (seen_.insert(axis).second ? " exchange" : " gather")};
}

RecordedComm::RecordedComm(std::unique_ptr<comm::Communicator> inner, StepRecord& record, GroupNames& names)
    : Decorator(std::move(inner)), record_(record), names_(names) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank) ranks.push_back(name_in_run(rank));
  group_ = names_.name(ranks);
}

// A collective that is started and left to itself is in a lane, and so is what another thread than the step's own calls. What a step starts
// may be waited for in a later one.
comm::Work RecordedComm::start(const comm::Operation& operation) {
  if (group_.axis.empty() || !record_.is_own_thread()) return inner().start(operation);
  const bool collective = operation.is_collective();
  const std::string text = operation_text(group_.axis, comm::name_of(operation.kind), operation.buffer.bytes());
  if (collective) record_.leaves(group_.lane, text, /*can_wait=*/false);
  else record_.event(text);
  return comm::Work(std::make_shared<RecordedWork>(inner().start(operation), record_, collective ? group_.lane : "", text));
}

void RecordedComm::run(const comm::Operation& operation) {
  const bool own = record_.is_own_thread(), collective = operation.is_collective();
  if (group_.axis.empty() || !record_.records() || (!own && !collective)) return inner().run(operation);
  const std::string text = operation_text(group_.axis, comm::name_of(operation.kind), operation.buffer.bytes());
  if (own) record_.event(text);
  else record_.leaves(group_.lane, text, /*can_wait=*/true);
  inner().run(operation);
  if (!own) record_.ended(group_.lane);
}

}  // namespace paceline::train
