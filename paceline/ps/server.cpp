#include "paceline/ps/server.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "paceline/base/error.h"
#include "paceline/base/finite.h"
#include "paceline/optim/parallel.h"

namespace paceline::ps {
namespace {

constexpr std::int64_t kAlignment = 16;  // elements: a cache line

std::vector<optim::Segment> own_segments(const Server::Setup& setup) {
  std::vector<optim::Segment> result = optim::segments_within(setup.segments, setup.begin, setup.end);
  for (optim::Segment& segment : result) segment.offset -= setup.begin;
  return result;
}

}  // namespace

std::shared_ptr<float[]> allocate_host(std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(count, 1)) * sizeof(float);
  auto* memory = static_cast<float*>(::operator new(bytes, std::align_val_t(64)));
  std::memset(memory, 0, bytes);
  return {memory, [](float* p) { ::operator delete(p, std::align_val_t(64)); }};
}

std::vector<std::int64_t> cut_ranges(std::span<const optim::Segment> segments, std::int64_t length, int servers, bool elementwise) {
  std::vector<std::int64_t> cuts = {0};
  for (int i = 1; i < servers; ++i) {
    std::int64_t cut = length * i / servers / kAlignment * kAlignment;
    if (!elementwise) {  // at the nearest beginning of a tensor
      std::int64_t nearest = cuts.back();
      for (const optim::Segment& segment : segments)
        if (segment.offset > cuts.back() && std::abs(segment.offset - cut) < std::abs(nearest - cut)) nearest = segment.offset;
      cut = nearest;
    }
    cuts.push_back(std::max(cut, cuts.back()));
  }
  cuts.push_back(length);
  return cuts;
}

bool is_usable(std::span<const float> values, const Push& push, const Place& place) {
  return push.finite != 0 && (place.cuda || all_finite(values.data(), std::ssize(values)));
}

Server::Server(const PsConfig& config, const optim::OptimConfig& optim, const Setup& setup)
    : config_(config),
      setup_(setup),
      rule_(make_rule({config, optim, setup.workers, setup.seed})),
      consistency_(make_consistency(config.consistency, config, setup.workers)),
      in_rounds_(consistency_kind(config.consistency).synchronous),
      optimizer_(server_optimizer(config, optim), own_segments(setup), setup.end - setup.begin, setup.place.cuda),
      weight_decay_(static_cast<float>(server_optimizer(config, optim).weight_decay)),
      round_(setup.allocate, setup.end - setup.begin, setup.statistics) {
  if (config.lock_free && setup.place.cuda)
    throw ConfigError("ps.lock_free needs parameters in host memory; use train.device=cpu, or ps.lock_free=false");
  if (!setup_.parameters) own_parameters_ = setup_.allocate(length());
  parameters_ = setup_.parameters ? setup_.parameters : own_parameters_.get();
  optim::RangeOptimizer::Memory memory{.parameters = parameters_};
  if (!rule_->needs().whole_update)
    for (std::size_t i = 0; i < optimizer_.state_names().size(); ++i) {
      state_.push_back(setup_.allocate(length()));
      memory.state.push_back(state_.back().get());
    }
  if (rule_->needs().kept) kept_ = setup_.allocate(length());
  if (rule_->needs().kept_second) kept_second_ = setup_.allocate(length());
  if (config_.averaging > 0) average_ = setup_.allocate(length());
  if (optimizer_.clips()) {
    norm_ = setup_.allocate(2);  // one double
    memory.squared_norm = reinterpret_cast<double*>(norm_.get());
  }
  optimizer_.bind(std::move(memory));
  if (setup_.keeps_previous) previous_ = setup_.allocate(length());
  statistics_ = setup_.allocate(setup_.statistics);
  workers_.reserve(static_cast<std::size_t>(setup_.workers));
  for (int i = 0; i < setup_.workers; ++i) worker(i);
}

Server::Worker& Server::worker(int index) {
  ensure(index >= 0, "a worker's number is not negative");
  if (std::ssize(workers_) <= index) workers_.resize(static_cast<std::size_t>(index) + 1);
  Worker& found = workers_[static_cast<std::size_t>(index)];
  if (rule_->needs().pulled && !found.pulled) found.pulled = setup_.allocate(length());
  if (rule_->needs().kept_of_worker && !found.kept) found.kept = setup_.allocate(length());
  return found;
}

Slice Server::slice(std::int64_t offset, std::int64_t count, bool decay, float* gradient, Worker& worker) const {
  const auto at = [offset](const std::shared_ptr<float[]>& memory) { return memory ? memory.get() + offset : nullptr; };
  return {.place = setup_.place,
          .count = count,
          .gradient = gradient + offset,
          .out = gradient + offset,
          .parameters = parameters_ + offset,
          .pulled = at(worker.pulled),
          .kept = at(kept_),
          .kept_second = at(kept_second_),
          .kept_of_worker = at(worker.kept),
          .decay = decay};
}

void Server::grant(int index) {
  if (consistency_->cancelled(index)) ++dropped_;  // the worker stops, and what it computed will not arrive
  worker(index).pulled_version = version_;
  consistency_->pulled(index);
}

void Server::read(int index, float* into, float rate, std::int64_t number) {
  Worker& puller = workers_[static_cast<std::size_t>(index)];
  const float* from = previous_ && handled(number) && !round_.has(number) ? previous_.get() : parameters_;
  if (rule_->needs().sends_own) {
    ensure(into != parameters_, "a rule that sends something else than the parameters needs another place for it");
    Slice whole = slice(0, length(), true, into, puller);
    rule_->send(whole, rate);
  } else if (config_.lock_free) {
    read_without_lock(into);
  } else if (into != parameters_) {
    for_each_parallel(setup_.place, length(), Copy{into, from});
  }
  if (puller.pulled) for_each_parallel(setup_.place, length(), Copy{puller.pulled.get(), from});
}

// A duplicate report, from a worker that retries or from another worker that computes the minibatch again, gets the first answer. The
// statistics and the rule have seen this minibatch already.
Advice Server::report(int index, const Report& report, const float* statistics) {
  const Advice* first = ledger_.advice(report.number);
  if (first || handled(report.number)) {
    Advice again = first ? *first : Advice{};  // its push will be a duplicate, so the factor does not matter
    again.cancelled = consistency_->cancelled(index);
    return again;
  }
  if (statistics && setup_.statistics > 0 &&
      std::isfinite(report.loss)) {  // otherwise the statistics of a pass that overflowed would stay forever
    const auto share = static_cast<float>(config_.norm_share);
    if (in_rounds_) round_.report(setup_.place, {report.number, index}, statistics);
    else for_each(setup_.place, setup_.statistics, Blend{statistics_.get(), statistics, 1 - share, share});
  }
  Advice advice = rule_->on_report(index, report);
  if (report.number > 0) ledger_.advise(report.number, advice);
  advice.cancelled = consistency_->cancelled(index);
  return advice;
}

Admission Server::push(int index, float* gradient, const Push& push) {
  if (push.number > 0) ledger_.handle(push.number, push.complete_below);
  const Admission admission = consistency_->pushed(index, push.loss);
  if (admission.fate == Admission::Fate::dropped) {
    ++dropped_;
    return admission;
  }
  const float rate = config_.pushes_steps() ? 1 : push.rate;  // a step already contains the rate
  Arrival arrival{.worker = index, .staleness = version_ - worker(index).pulled_version, .updates = version_, .rate = rate};
  ++staleness_[arrival.staleness];
  arrival.scale = push.scale;
  rule_->observe(slice(0, length(), true, gradient, worker(index)), arrival);
  const auto factor = static_cast<float>(rule_->rate_factor(arrival));
  last_rate_ = rate;
  const bool applied = admission.fate == Admission::Fate::applied;
  if (applied && admission.gathered == 1) {
    arrival.rate *= factor;
    round_.blend_alone(setup_.place, {push.number, index}, statistics_.get(), static_cast<float>(config_.norm_share));
    apply_one(gradient, arrival);
  } else {
    arrival.scale *= factor;
    gather(gradient, arrival, {push.number, index}, admission.gathered == 1);
    if (applied) apply_gathered(admission.gathered, rate);
  }
  if (push.number > 0 && rule_->needs().replica) keep_answer(worker(index), gradient, push.number);
  return admission;
}

void Server::keep_answer(Worker& worker, const float* answer, std::int64_t number) {
  if (!worker.answer) worker.answer = setup_.allocate(length());
  for_each_parallel(setup_.place, length(), Copy{worker.answer.get(), answer});
  worker.answered = number;
}

bool Server::repeat_answer(int index, std::int64_t number, float* into) {
  const Worker& asking = worker(index);
  if (!asking.answer || asking.answered != number) return false;
  for_each_parallel(setup_.place, length(), Copy{into, asking.answer.get()});
  return true;
}

bool Server::may_resume(int index) const {
  const bool moved = index >= std::ssize(workers_) || workers_[static_cast<std::size_t>(index)].pulled_version != version_;
  return consistency_->may_pull(index) && !(consistency_->cancels() && moved);
}

void Server::joined(int index) {
  Worker& joining = worker(index);
  if (joining.kept) rule_->forget(slice(0, length(), true, joining.kept.get(), joining));
  consistency_->joined(index);
}

void Server::left(int index) {
  Worker& leaving = worker(index);
  if (leaving.kept) rule_->forget(slice(0, length(), true, leaving.kept.get(), leaving));
  rule_->on_leave(index);
  const Admission admission = consistency_->left(index);
  if (admission.fate == Admission::Fate::applied && admission.gathered > 0) apply_gathered(admission.gathered, last_rate_);
}

void Server::all_away() {
  for (int i = 0; i < std::ssize(workers_); ++i)
    if (const Admission admission = consistency_->left(i); admission.gathered > 0) apply_gathered(admission.gathered, last_rate_);
}

void Server::returned(int index) {
  worker(index);
  consistency_->joined(index);
}

void Server::refuse(int index, const Push& push) {
  if (push.number > 0) ledger_.handle(push.number, push.complete_below);
  ++refused_;
  round_.forget({push.number, index});
  consistency_->refused(index);
}

void Server::update(float* gradient, const optim::Hyper& hyper) {
  if (previous_) for_each_parallel(setup_.place, length(), Copy{previous_.get(), parameters_});
  optimizer_.update(gradient, hyper, setup_.place.stream);
}

// One pass over memory: a block is adjusted into the cache and updated from there. Not on a GPU, nor if the update needs tensor norms.
void Server::adjust_in_blocks(float* gradient, const Arrival& arrival, const optim::Hyper& hyper) {
  Worker& pusher = worker(arrival.worker);
  const auto slice_of = [&](const optim::Block& block) { return slice(block.offset, block.count, block.decay, gradient, pusher); };
  if (rule_->needs().whole_update)
    return optim::for_each_block(optimizer_.segments(), [&](const optim::Block& block) { rule_->adjust(slice_of(block), arrival); });
  const auto adjust = [&](const optim::Block& block, float* adjusted) {
    Slice part = slice_of(block);
    part.out = adjusted;
    rule_->adjust(part, arrival);
  };
  optimizer_.update_in_blocks(hyper, adjust, [&](const optim::Block& block) { rule_->learn(slice_of(block), arrival); });
}

void Server::apply_one(float* gradient, const Arrival& arrival) {
  const optim::Hyper now = hyper(arrival.rate, arrival.scale);
  if (!rule_->adjusts()) {
    update(gradient, now);
  } else if (!setup_.place.cuda && optimizer_.elementwise() && !optimizer_.clips() && !rule_->needs().whole_tensors) {
    adjust_in_blocks(gradient, arrival, now);
  } else {
    Worker& pusher = worker(arrival.worker);
    if (rule_->needs().whole_update) {  // for each tensor, the rule must know whether it decays
      for (const optim::Segment& segment : optimizer_.segments())
        rule_->adjust(slice(segment.offset, segment.count, segment.decay, gradient, pusher), arrival);
    } else {
      const Slice whole = slice(0, length(), true, gradient, pusher);
      rule_->adjust(whole, arrival);
      update(gradient, now);
      rule_->learn(whole, arrival);
    }
  }
  finish_update();
}

optim::Hyper Server::hyper(float rate, float scale) const {
  return {.rate = rate, .gradient_scale = scale, .decay_scale = static_cast<float>(rule_->gradients_in_a_push()), .step = version_ + 1};
}

void Server::finish_update() {
  const float keep = version_++ > 0 ? static_cast<float>(config_.averaging) : 0;
  if (average_) for_each_parallel(setup_.place, length(), Blend{average_.get(), parameters_, keep, 1 - keep});
}

void Server::gather(float* gradient, const Arrival& arrival, const Round::Key& key, bool first) {
  if (!gathered_) gathered_ = setup_.allocate(length());
  if (rule_->adjusts()) rule_->adjust(slice(0, length(), true, gradient, worker(arrival.worker)), arrival);
  if (in_rounds_) return round_.push(setup_.place, key, gradient, arrival.scale, arrival.rate);
  if (first) for_each_parallel(setup_.place, length(), Scale{gathered_.get(), gradient, arrival.scale});
  else for_each_parallel(setup_.place, length(), Blend{gathered_.get(), gradient, 1, arrival.scale});
  ++gathered_count_;
  last_gathered_ = arrival.worker;
}

void Server::apply_gathered(int count, float rate) {
  if (in_rounds_) {
    if (round_.pushed() == 0) return;  // a damaged checkpoint said otherwise
    round_.add_up(setup_.place, gathered_.get());
    round_.blend(setup_.place, statistics_.get(), static_cast<float>(config_.norm_share));
    last_gathered_ = round_.last().worker, rate = round_.last().rate;  // not those of the last to arrive
    round_.complete();
  }
  update(gathered_.get(), hyper(rate, 1.0f / static_cast<float>(count)));
  const Arrival last{.worker = last_gathered_, .updates = version_, .rate = rate};
  rule_->learn(slice(0, length(), true, gathered_.get(), worker(last_gathered_)), last);
  gathered_count_ = 0;
  finish_update();
}

}  // namespace paceline::ps
