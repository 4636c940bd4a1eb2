#include "paceline/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "paceline/base/error.h"
#include "paceline/optim/rules/element.h"

namespace paceline::optim {

void OptimConfig::describe(Section& section) {
  std::vector<std::string_view> names;
  for (const Listing& row : listing(optimizers())) names.push_back(row.key);
  section.field("name", name, "the optimizer").one_of(std::move(names));
  section.field("rate", rate, "learning rate; the schedule multiplies it").at_least(0);
  section.field("momentum", momentum, "sgd, lars, rmsprop, rmsprop_warmup: share of the velocity that a step keeps").at_least(0).at_most(1);
  section.field("nesterov", nesterov, "sgd, lars: Nesterov's momentum");
  section.field("weight_decay", weight_decay, "weight decay λ: decoupled from the gradient (adamw, lamb), added to it (all others)")
      .at_least(0);
  section.field("decay_norms", decay_norms, "apply weight decay, and the adaptation of lars and lamb, to norms and biases too");
  section.field("beta1", beta1, "adam, adamw, lamb: share of the first moment that a step keeps").at_least(0).at_most(1);
  section.field("beta2", beta2, "adam, adamw, lamb, rmsprop, rmsprop_warmup: share of the mean square that a step keeps")
      .at_least(0)
      .at_most(1);
  section.field("epsilon", epsilon, "all but sgd and lars: ε, added to the root of the mean square").above(0);
  section.field("trust", trust, "lars: trust coefficient: length of a step as a share of the tensor's norm").above(0);
  section.field("rmsprop_rate", rmsprop_rate, "rmsprop_warmup: learning rate of RMSprop's part; the schedule does not change it").above(0);
  section.field("transition_center", transition_center, "rmsprop_warmup: step at which half of the update is SGD").at_least(0);
  section.field("transition_period", transition_period, "rmsprop_warmup: the update is all SGD half of this many steps later").above(0);
  section.field("clip_norm", clip_norm, "largest global norm of the gradient; 0: no limit").at_least(0);
}

void validate(const OptimConfig& config) {
  if (config.nesterov && !optimizer_kind(config.name).nesterov)
    throw ConfigError("optim.nesterov belongs to sgd and lars, not to " + config.name + "; set nesterov=false or choose one of them");
  if (config.nesterov && !(config.momentum > 0))
    throw ConfigError("optim.nesterov needs a momentum above 0, not " + std::to_string(config.momentum) +
                      "; set optim.momentum, for example to 0.9");
  if (!(config.beta1 >= 0 && config.beta1 < 1 && config.beta2 >= 0 && config.beta2 < 1))
    throw ConfigError("optim.beta1 and optim.beta2 must be at least 0 and below 1, not " + std::to_string(config.beta1) + " and " +
                      std::to_string(config.beta2));
}

namespace {

/// Akiba et al.'s transition: ½ e^(2x) up to the center, ½ + x after it, x = (t − center) / period; value and slope are continuous.
double sgd_share(const OptimConfig& config, double t) {
  const double x = (t - config.transition_center) / config.transition_period;
  return x < 0 ? 0.5 * std::exp(2 * x) : std::min(0.5 + x, 1.0);
}

}  // namespace

Step make_step(const OptimConfig& config, const Hyper& hyper) {
  ensure(hyper.step >= 1, "the steps of an optimizer count from 1");
  const auto t = static_cast<double>(hyper.step);
  const double share = sgd_share(config, t), of_rmsprop = hyper.rate > 0 ? (1 - share) * config.rmsprop_rate / hyper.rate : 0;
  const double correction1 = 1 / (1 - std::pow(config.beta1, t)), correction2 = 1 / (1 - std::pow(config.beta2, t));
  return {
      .rate = hyper.rate,
      .scale = hyper.gradient_scale,
      .decay = static_cast<float>(config.weight_decay * hyper.decay_scale),
      .momentum = static_cast<float>(config.momentum),
      .trust = static_cast<float>(config.trust),
      .beta1 = static_cast<float>(config.beta1),
      .fresh1 = static_cast<float>(1 - config.beta1),
      .beta2 = static_cast<float>(config.beta2),
      .fresh2 = static_cast<float>(1 - config.beta2),
      .epsilon = static_cast<float>(config.epsilon),
      .correction1 = static_cast<float>(correction1),
      .corrected_rate = static_cast<float>(hyper.rate * correction1),
      .root_correction2 = static_cast<float>(std::sqrt(correction2)),
      .sgd_share = static_cast<float>(share),
      .rmsprop_share = static_cast<float>(of_rmsprop),
  };
}

}  // namespace paceline::optim
