// One network serves all workers, with a carried state for each: it learns from every visit, and its weights stay in the cache.
#include <algorithm>
#include <array>

#include "paceline/base/error.h"
#include "paceline/ps/predictors/lstm.h"
#include "paceline/ps/predictors/lstm_predictors.h"
#include "paceline/ps/predictors/shape.h"
#include "paceline/ps/predictors/standardiser.h"
#include "paceline/ps/predictors/state_list.h"

namespace paceline::ps {

struct LstmSteps::State {
  struct Worker {
    Lstm<float>::State carried;     // before `inputs`
    std::array<float, 3> inputs{};  // steps, t_comm, t_comp of its last visit
    float known = 0;                // 1: it has visited before

    StateList parts() { return {carried.hidden, carried.cell, inputs, {&known, 1}}; }
  };

  State(const PredictorConfig& config, int count, std::uint64_t seed)
      : lstm(shape_of(config, 3), config.rate, RandomStream(seed, Purpose::init, kStepStream)),
        workers(static_cast<std::size_t>(count), stranger()) {}

  Worker stranger() const { return {.carried = lstm.state()}; }

  Worker& at(int worker) {
    ensure(worker >= 0, "workers are numbered from 0");
    const auto index = static_cast<std::size_t>(worker);
    if (index >= workers.size()) workers.resize(index + 1, stranger());
    return workers[index];
  }

  StateList shared_parts() {
    StateList parts = lstm.parts();
    for (Standardiser* standard : {&steps, &t_comm, &t_comp}) standard->add_to(parts);
    return parts;
  }

  Lstm<float> lstm;
  std::vector<Worker> workers;
  Standardiser steps, t_comm, t_comp;
  Lstm<float>::Step step = lstm.step();
};

LstmSteps::LstmSteps(const PredictorConfig& config, int workers, std::uint64_t seed)
    : state_(std::make_unique<State>(config, workers, seed)) {}
LstmSteps::~LstmSteps() = default;

double LstmSteps::observe(int worker, std::int64_t steps, double t_comm_s, double t_comp_s) {
  State& s = *state_;
  State::Worker& visitor = s.at(worker);
  float input = 0;
  if (visitor.known == 1) {
    input = s.steps.take(static_cast<double>(steps));
    s.lstm.forward(visitor.inputs, visitor.carried, s.step);
    s.lstm.train(s.step, input);
    std::swap(visitor.carried, s.step.after);
  }
  visitor.inputs = {input, s.t_comm.take(t_comm_s), s.t_comp.take(t_comp_s)};
  visitor.known = 1;
  if (s.steps.empty()) return std::max(0.0, static_cast<double>(steps));
  return std::max(0.0f, s.steps.restore(s.lstm.forward(visitor.inputs, visitor.carried, s.step)));
}

void LstmSteps::forget(int worker) { state_->at(worker) = state_->stranger(); }

std::vector<float> LstmSteps::save() const {
  StateList parts = state_->shared_parts();
  for (State::Worker& worker : state_->workers)
    for (const std::span<float>& part : worker.parts()) parts.push_back(part);
  return joined(parts);
}

void LstmSteps::load(std::span<const float> state) {
  State& s = *state_;
  const StateList shared = s.shared_parts();
  const std::size_t fixed = length_of(shared), each = length_of(s.stranger().parts());
  const std::size_t saved = (std::max(state.size(), fixed) - fixed) / each;
  check_length(state, fixed + saved * each, "step predictor");
  fill(shared, state);
  s.workers.assign(std::max(s.workers.size(), saved), s.stranger());
  for (std::size_t index = 0; index < saved; ++index) fill(s.workers[index].parts(), state.subspan(fixed + index * each));
}

}  // namespace paceline::ps
