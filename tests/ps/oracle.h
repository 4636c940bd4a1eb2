// The parameter server once more, in double, one element after the other, from the formulas of the papers: what scripted events must come
// to. The optimizers are those of tests/optim/reference.h. Who is gathered with whom is not its business: it is told how many make an
// update.
//
// At the end: the settings with which tests/ps/rules_test.cpp holds every rule to its formula.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "paceline/ps/config.h"
#include "tests/optim/reference.h"

namespace paceline::ps {

using Doubles = std::vector<double>;
inline Doubles doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

class Oracle {
 public:
  Oracle(const PsConfig& ps, const optim::OptimConfig& optim, std::vector<optim::Segment> segments, const std::vector<float>& weights,
         int workers, int group = 1)
      : ps_(ps),
        optim_(optim),
        group_(group),
        workers_(static_cast<std::size_t>(workers), Worker{0, doubles(weights), Doubles(weights.size())}),
        kept_(weights.size()),
        sum_(weights.size()),
        model_{optim, std::move(segments), doubles(weights), Doubles(weights.size()), Doubles(weights.size())} {
    for (optim::Segment& segment : model_.segments) segment.decay = segment.decay || optim.decay_norms;
  }

  /// What the worker is sent.
  Doubles pull(int worker, double rate) {
    at(worker).version = version_;
    at(worker).pulled = model_.weights;
    Doubles sent = model_.weights;
    if (ps_.rule == "dana")
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] -= rate * optim_.momentum * kept_[i];
    return sent;
  }

  /// `pushed` is the gradient; of easgd the replica, which it changes.
  void push(int worker, Doubles& pushed, double rate, double scale) {
    const std::int64_t stale = version_ - at(worker).version;
    ++staleness_[stale];
    if (ps_.rule == "easgd") return attract(pushed);
    if (ps_.rule == "dana") return take_velocity(at(worker), pushed, rate, scale);
    compensate(at(worker), pushed);
    const double slower = ps_.rule == "staleness_aware" ? 1.0 / static_cast<double>(std::max<std::int64_t>(stale, 1)) : 1.0;
    const bool alone = group_ == 1;  // an update has one rate: where it has several gradients, they are scaled instead
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += scale * (alone ? 1 : slower) * pushed[i];
    rates_[worker] = rate;
    // Whoever comes last under bsp, the order of the round decides, which is that of the workers here.
    if (++gathered_ == group_) update((ps_.consistency == "bsp" ? rates_.rbegin()->second : rate) * (alone ? slower : 1));
  }

  /// With the mean of what has been gathered.
  void update(double rate) {
    for (double& value : sum_) value /= gathered_;
    if (optim_.clip_norm > 0) {
      double square = 0;
      for (const double value : sum_) square += value * value;
      const double factor = std::min(1.0, optim_.clip_norm / (std::sqrt(square) + 1e-6));
      for (double& value : sum_) value *= factor;
    }
    const Doubles before = model_.weights;
    model_.step(sum_, rate, static_cast<double>(++version_));
    if (ps_.rule == "gap_aware")
      for (std::size_t i = 0; i < kept_.size(); ++i)
        kept_[i] = ps_.gap_decay * kept_[i] + (1 - ps_.gap_decay) * std::pow(model_.weights[i] - before[i], 2);
    std::ranges::fill(sum_, 0);
    gathered_ = 0;
    rates_.clear();
  }

  const Doubles& weights() const { return model_.weights; }
  std::int64_t version() const { return version_; }
  const std::map<std::int64_t, std::int64_t>& staleness() const { return staleness_; }

 private:
  struct Worker {
    std::int64_t version;
    Doubles pulled;  // w_bak
    Doubles kept;    // dc_asgd: MS; dana: v
  };
  Worker& at(int worker) { return workers_[static_cast<std::size_t>(worker)]; }

  void compensate(Worker& worker, Doubles& gradient) const {
    const bool adaptive = ps_.compensation == "adaptive";
    const double lambda = ps_.dc_lambda > 0 ? ps_.dc_lambda : adaptive ? 2 : 0.04;
    const double seen = 1 - std::pow(ps_.gap_decay, static_cast<double>(version_));
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double g = gradient[i], moved = model_.weights[i] - worker.pulled[i];
      if (ps_.rule == "dc_asgd") {
        worker.kept[i] = ps_.dc_decay * worker.kept[i] + (1 - ps_.dc_decay) * g * g;
        gradient[i] = g + (adaptive ? lambda / std::sqrt(worker.kept[i] + 1e-7) : lambda) * g * g * moved;
      } else if (ps_.rule == "gap_aware" && version_ > 0) {
        gradient[i] = g / (1 + std::abs(moved) / (std::sqrt(kept_[i] / seen) + 1e-8));
      }
    }
  }

  void take_velocity(Worker& worker, const Doubles& gradient, double rate, double scale) {
    for_each_element_of_a_tensor([&](std::size_t i, bool decay) {
      const double before = worker.kept[i];
      worker.kept[i] = optim_.momentum * before + scale * gradient[i] + (decay ? optim_.weight_decay : 0) * model_.weights[i];
      kept_[i] += worker.kept[i] - before;  // Σ v
      model_.weights[i] -= rate * worker.kept[i];
    });
    ++version_;
  }

  void attract(Doubles& replica) {
    const double alpha = ps_.elasticity > 0 ? ps_.elasticity : 0.9 / static_cast<double>(workers_.size());
    for_each_element_of_a_tensor([&](std::size_t i, bool) {
      const double e = alpha * (replica[i] - model_.weights[i]);
      replica[i] -= e;
      model_.weights[i] += e;
    });
    ++version_;
  }

  template <class Body>
  void for_each_element_of_a_tensor(const Body& body) {
    for (const optim::Segment& segment : model_.segments)
      for (std::int64_t i = 0; i < segment.count; ++i) body(static_cast<std::size_t>(segment.offset + i), segment.decay);
  }

  PsConfig ps_;
  optim::OptimConfig optim_;
  int group_, gathered_ = 0;
  std::map<int, double> rates_;  // of the update that is under way, by worker
  std::vector<Worker> workers_;
  Doubles kept_;  // gap_aware: mean squared step; dana: Σ v
  Doubles sum_;   // of the gathered gradients
  optim::Reference model_;
  std::int64_t version_ = 0;
  std::map<std::int64_t, std::int64_t> staleness_;
};

// ---- the settings that every rule is held to its formula with

struct RuleCase {
  std::string name;
  PsConfig ps;
  optim::OptimConfig optim;
  bool changes = true;  // the rule does something that asgd does not
};

inline PsConfig of_rule(const std::string& rule) {
  PsConfig config;
  config.rule = rule;
  config.layers = 1, config.hidden = 4;  // small predictors
  config.reading = "squared";            // factors below and above 1
  return config;
}

inline std::vector<RuleCase> rule_cases() {
  PsConfig constant = of_rule("dc_asgd"), strong = constant, forgetful = of_rule("gap_aware"), stiff = of_rule("easgd");
  constant.compensation = strong.compensation = "constant";
  strong.dc_lambda = 0.3;
  forgetful.gap_decay = 0.9;
  stiff.elasticity = 0.7;
  const std::vector<RuleCase> rules = {
      {"asgd", of_rule("asgd"), {}, false},
      {"lc_asgd", of_rule("lc_asgd"), {}},
      {"staleness_aware", of_rule("staleness_aware"), {}},
      {"dc_asgd_constant", constant, {}},
      {"dc_asgd_adaptive", of_rule("dc_asgd"), {}},
      {"gap_aware", of_rule("gap_aware"), {}},
  };
  const optim::OptimConfig plain{.momentum = 0, .weight_decay = 0.01}, heavy_ball{.weight_decay = 0.01};
  optim::OptimConfig nesterov = heavy_ball, clipped = heavy_ball, all_decay = heavy_ball;
  nesterov.nesterov = all_decay.decay_norms = true;
  clipped.clip_norm = 185;  // the gradients have about 189 before they are scaled
  const std::pair<const char*, optim::OptimConfig> optimizers[] = {
      {"plain", plain},
      {"heavy_ball", heavy_ball},
      {"nesterov", nesterov},
      {"clipped", clipped},
      {"adam", {.name = "adam", .weight_decay = 0.01}},
      {"lars", {.name = "lars", .weight_decay = 0.01, .trust = 0.2}},
  };
  std::vector<RuleCase> all = {
      {"asgd_all_decay", of_rule("asgd"), all_decay, false},
      {"average", of_rule("average"), heavy_ball, false},
      {"downpour", of_rule("downpour"), heavy_ball, false},
      {"dc_asgd_strong", strong, heavy_ball},
      {"gap_aware_forgetful", forgetful, heavy_ball},
      {"dana_heavy_ball", of_rule("dana"), heavy_ball},
      {"dana_all_decay", of_rule("dana"), all_decay},
      {"easgd", of_rule("easgd"), heavy_ball},
      {"easgd_stiff", stiff, heavy_ball},
      {"easgd_lars", of_rule("easgd"), {.name = "lars"}},
  };
  for (const RuleCase& rule : rules)
    for (const auto& [name, optim] : optimizers) all.push_back({rule.name + "_" + name, rule.ps, optim, rule.changes});
  return all;
}

inline void PrintTo(const RuleCase& one, std::ostream* out) { *out << one.name; }

}  // namespace paceline::ps
