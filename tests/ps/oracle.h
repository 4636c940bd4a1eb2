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
        second_(weights.size()),
        sum_(weights.size()),
        last_gradient_(weights.size()),
        last_point_(weights.size()),
        model_{optim, std::move(segments), doubles(weights), Doubles(weights.size()), Doubles(weights.size())} {
    for (optim::Segment& segment : model_.segments) segment.decay = segment.decay || optim.decay_norms;
    if (ps.rule == "downpour") model_.config.weight_decay *= static_cast<double>(ps.period);  // as often as there are gradients in a push
  }

  /// What the worker is sent.
  Doubles pull(int worker, double rate) {
    at(worker).version = version_;
    at(worker).pulled = model_.weights;
    Doubles sent = model_.weights;
    if (ps_.rule == "dana")
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] -= rate * optim_.momentum * kept_[i];
    if (ps_.rule == "look_ahead") {
      const double steps = ps_.look_ahead > 0 ? ps_.look_ahead : version_ > 0 ? stale_sum_ / static_cast<double>(version_) : 0;
      const double mu = ps_.outer_momentum, series = mu * (1 - std::pow(mu, steps)) / (1 - mu);
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] -= outer_rate() * series * kept_[i];
    }
    return sent;
  }

  /// `pushed` is the gradient; of easgd the replica, which it changes.
  void push(int worker, Doubles& pushed, double rate, double scale) {
    const std::int64_t stale = version_ - at(worker).version;
    ++staleness_[stale];
    stale_sum_ += static_cast<double>(stale);
    largest_rate_ = std::max(largest_rate_, rate);
    if (ps_.rule == "easgd") return attract(pushed);
    if (ps_.rule == "dana") return take_velocity(at(worker), pushed, rate, scale);
    if (ps_.pushes_steps() && ps_.rule != "asgd") return outer_step(pushed, stale);
    double slower = 1;
    if (ps_.rule == "staleness_aware" || ps_.rule == "dc_staleness_aware")
      slower = 1.0 / static_cast<double>(std::max<std::int64_t>(stale, 1));
    if (ps_.rule == "stability_cap") slower = share_of_the_stable(at(worker), pushed, stale, rate);
    compensate(at(worker), pushed);
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
    const double unit = ps_.gap_rate == "maximal" ? rate : 1;
    if (ps_.rule == "gap_aware")
      for (std::size_t i = 0; i < kept_.size(); ++i)
        kept_[i] = ps_.gap_decay * kept_[i] + (1 - ps_.gap_decay) * std::pow((model_.weights[i] - before[i]) / unit, 2);
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
    const double seen = 1 - std::pow(ps_.gap_decay, static_cast<double>(version_)), reach = ps_.gap_rate == "maximal" ? largest_rate_ : 1;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double g = gradient[i], moved = model_.weights[i] - worker.pulled[i];
      if (ps_.rule == "dc_asgd" || ps_.rule == "dc_staleness_aware") {
        worker.kept[i] = ps_.dc_decay * worker.kept[i] + (1 - ps_.dc_decay) * g * g;
        gradient[i] = g + (adaptive ? lambda / std::sqrt(worker.kept[i] + 1e-7) : lambda) * g * g * moved;
      } else if (ps_.rule == "gap_aware" && version_ > 0) {
        gradient[i] = g / (1 + std::abs(moved) / (reach * std::sqrt(kept_[i] / seen) + 1e-8));
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

  /// The smaller one of 1 and the stability limit of a quadratic whose gradients come late, as a share of the rate.
  double share_of_the_stable(const Worker& worker, const Doubles& gradient, std::int64_t stale, double rate) {
    const double keep = ps_.curvature_decay;
    if (version_ > 0) {
      double product = 0, square = 0;
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const double moved = worker.pulled[i] - last_point_[i];
        product += (gradient[i] - last_gradient_[i]) * moved, square += moved * moved;
      }
      product_ = keep * product_ + (1 - keep) * product, square_ = keep * square_ + (1 - keep) * square;
      mean_stale_ = keep * mean_stale_ + (1 - keep) * static_cast<double>(stale);
    } else {
      mean_stale_ = static_cast<double>(stale);
    }
    last_gradient_ = gradient, last_point_ = worker.pulled;
    if (!(square_ > 0 && product_ > 0)) return 1;
    const double limit = 2 * std::sin(M_PI / (4 * mean_stale_ + 2)) / (product_ / square_);
    return std::min(1.0, ps_.stability_margin * limit / rate);
  }

  /// So much of Δ, and so much of m.
  struct Turned {
    double delta = 1, momentum = 0;
  };

  double outer_rate() const {
    if (ps_.outer_rate > 0) return ps_.outer_rate;
    return ps_.rule == "cgad" || ps_.rule == "adam_decay" ? 0.005 : 0.7;
  }

  /// The rules of paceline/ps/rules/outer.h, one tensor after the other.
  void outer_step(const Doubles& delta, std::int64_t stale) {
    const double eta = outer_rate(), mu = ps_.outer_momentum, t = static_cast<double>(++version_);
    for (const optim::Segment& segment : model_.segments) {
      const auto begin = static_cast<std::size_t>(segment.offset), end = begin + static_cast<std::size_t>(segment.count);
      const Turned turned = ps_.rule == "heloco" ? heloco(delta, begin, end) : Turned{};
      for (std::size_t i = begin; i < end; ++i) {
        double &w = model_.weights[i], &m = kept_[i], &s = second_[i];
        if (ps_.rule == "delayed_nesterov") {
          const double n = static_cast<double>(ps_.momentum_every), c = ps_.momentum_share;
          const bool turn = version_ % ps_.momentum_every == 0;
          s += delta[i];
          if (turn) m = mu * m + s / n, s = 0;
          w -= eta * ((turn ? 1 - c * n + c : c) * mu * m + delta[i] / n);
        } else if (ps_.rule == "cgad" || ps_.rule == "adam_decay") {
          const double age = static_cast<double>(stale), cutoff = ps_.age_cutoff > 0 ? ps_.age_cutoff : 4.0 * std::ssize(workers_);
          const double gate = ps_.rule == "adam_decay" ? 1 : age < cutoff ? (1 + std::cos(M_PI * age / cutoff)) / 2 : 0;
          const double d = gate * std::exp(-ps_.age_decay * age) * delta[i];
          m = mu * m + (1 - mu) * d, s = ps_.outer_beta2 * s + (1 - ps_.outer_beta2) * d * d;
          w -= eta * m / (1 - std::pow(mu, t)) / (std::sqrt(s / (1 - std::pow(ps_.outer_beta2, t))) + 1e-8);
        } else if (ps_.rule == "look_ahead") {
          m = mu * m + delta[i];
          w -= eta * m;
        } else {
          const double d = turned.delta * delta[i] + turned.momentum * m;
          m = mu * m + d;
          w -= eta * (d + mu * m);
        }
      }
    }
  }

  /// What becomes of a tensor's Δ.
  Turned heloco(const Doubles& delta, std::size_t begin, std::size_t end) const {
    double dd = 0, mm = 0, dm = 0;
    for (std::size_t i = begin; i < end; ++i) dd += delta[i] * delta[i], mm += kept_[i] * kept_[i], dm += delta[i] * kept_[i];
    const double d = std::sqrt(dd), m = std::sqrt(mm);
    if (m == 0) return {1, 0};
    const double c = dm / (d * m), confidence = d / (d + ps_.confidence * m);
    if (c >= ps_.keep_cosine) return {1, 0};
    if (c < 0) return {1, -std::min(ps_.shrink * -c * confidence, ps_.most_shrink) * c * d / m};
    const double lambda = std::min(ps_.turn * (ps_.keep_cosine - c) * confidence, 1.0);
    // u = (1 − λ) Δ̂ + λ m̂, stretched to the length of Δ
    const double length = std::sqrt(std::pow(1 - lambda, 2) + lambda * lambda + 2 * lambda * (1 - lambda) * c);
    return {(1 - lambda) / d * d / length, lambda / m * d / length};
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
  Doubles kept_;                        // gap_aware: mean squared step; dana: Σ v; of outer steps: m
  Doubles second_;                      // of outer steps: S, or Adam's second moment
  Doubles sum_;                         // of the gathered gradients
  Doubles last_gradient_, last_point_;  // stability_cap
  double product_ = 0, square_ = 0, mean_stale_ = 0;
  double stale_sum_ = 0, largest_rate_ = 0;
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

/// Those of paceline/ps/rules/outer.h.
inline bool takes_steps(const std::string& rule) {
  return rule == "async_nesterov" || rule == "delayed_nesterov" || rule == "adam_decay" || rule == "cgad" || rule == "heloco" ||
         rule == "look_ahead";
}

inline PsConfig of_rule(const std::string& rule) {
  PsConfig config;
  config.rule = rule;
  config.layers = 1, config.hidden = 4;  // small predictors
  config.reading = "squared";            // factors below and above 1
  if (takes_steps(rule)) config.optimizer = "worker";
  return config;
}

inline std::vector<RuleCase> rule_cases() {
  PsConfig constant = of_rule("dc_asgd"), strong = constant, forgetful = of_rule("gap_aware"), stiff = of_rule("easgd");
  constant.compensation = strong.compensation = "constant";
  strong.dc_lambda = 0.3;
  forgetful.gap_decay = 0.9;
  stiff.elasticity = 0.7;
  PsConfig maximal = of_rule("gap_aware"), rare = of_rule("downpour"), timid = of_rule("stability_cap"), bold = timid,
           shared = of_rule("delayed_nesterov"), gated = of_rule("cgad"), firm = of_rule("heloco"), far = of_rule("look_ahead");
  maximal.gap_rate = "maximal", maximal.gap_decay = 0.9;
  rare.period = 3;
  timid.stability_margin = 0.005, bold.stability_margin = 0.01, bold.curvature_decay = 0.5;  // gradients of chance show little curvature
  shared.momentum_every = 3, shared.momentum_share = 0.2, shared.outer_rate = 0.4;
  gated.age_cutoff = 3, gated.outer_rate = 0.02;
  firm.keep_cosine = 0.9, firm.shrink = 3, firm.most_shrink = 0.6, firm.turn = 2, firm.confidence = 0.3;
  far.look_ahead = 2.5, far.outer_momentum = 0.7;
  const std::vector<RuleCase> rules = {
      {"asgd", of_rule("asgd"), {}, false},
      {"lc_asgd", of_rule("lc_asgd"), {}},
      {"staleness_aware", of_rule("staleness_aware"), {}},
      {"dc_asgd_constant", constant, {}},
      {"dc_asgd_adaptive", of_rule("dc_asgd"), {}},
      {"gap_aware", of_rule("gap_aware"), {}},
      {"gap_aware_maximal", maximal, {}},
      {"dc_staleness_aware", of_rule("dc_staleness_aware"), {}},
      {"stability_cap", timid, {}},
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
      {"downpour_rare", rare, heavy_ball},
      {"downpour_adagrad", rare, {.name = "adagrad", .weight_decay = 0.01}},
      {"downpour_adamw", rare, {.name = "adamw", .weight_decay = 0.01}},
      {"stability_cap_bold", bold, plain},
      {"async_nesterov", of_rule("async_nesterov"), heavy_ball},
      {"delayed_nesterov", of_rule("delayed_nesterov"), heavy_ball},
      {"delayed_nesterov_shared", shared, heavy_ball},
      {"adam_decay", of_rule("adam_decay"), heavy_ball},
      {"cgad", of_rule("cgad"), heavy_ball},
      {"cgad_gated", gated, heavy_ball},
      {"heloco", of_rule("heloco"), heavy_ball},
      {"heloco_firm", firm, heavy_ball},
      {"look_ahead", of_rule("look_ahead"), heavy_ball},
      {"look_ahead_far", far, heavy_ball},
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
