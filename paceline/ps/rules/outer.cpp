#include "paceline/ps/rules/outer.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::ps {

void OuterConfig::describe(Section& section) {
  section.field("outer_rate", outer_rate, "local steps: learning rate of the server's outer step; 0: 0.7, for cgad and adam_decay 0.005")
      .at_least(0);
  section.field("outer_momentum", outer_momentum, "local steps: momentum of the outer step; for Adam, the decay of its first moment")
      .at_least(0)
      .at_most(1);
  section.field("outer_beta2", outer_beta2, "cgad, adam_decay: decay of Adam's second moment").at_least(0).at_most(1);
  section.field("momentum_every", momentum_every, "delayed_nesterov: pushes between two updates of the momentum (N)").at_least(1);
  section.field("momentum_share", momentum_share, "delayed_nesterov: share of the momentum that every push applies (c, at most 1/N)")
      .at_least(0)
      .at_most(1);
  section.field("age_decay", age_decay, "cgad, adam_decay: a push that is τ updates old has the weight e^(-age_decay·τ)").at_least(0);
  section.field("age_cutoff", age_cutoff, "cgad: staleness from which a push is ignored; 0: four times the number of workers").at_least(0);
  section.field("keep_cosine", keep_cosine, "heloco: a push with at least this cosine to the momentum is not changed")
      .at_least(0)
      .at_most(1);
  section.field("shrink", shrink, "heloco: how strongly a push against the momentum loses that component").at_least(0);
  section.field("most_shrink", most_shrink, "heloco: largest share of that component that is removed").at_least(0).at_most(1);
  section.field("turn", turn, "heloco: how strongly a push across the momentum is turned towards it").at_least(0);
  section.field("confidence", confidence, "heloco: weight of the momentum's norm, relative to the push's, in the confidence").at_least(0);
  section.field("look_ahead", look_ahead, "look_ahead: outer steps by which workers start ahead; 0: the mean staleness so far").at_least(0);
}

void validate(const OuterConfig& config) {
  for (const auto& [key, value] : {std::pair{"outer_rate", config.outer_rate},
                                   {"age_decay", config.age_decay},
                                   {"age_cutoff", config.age_cutoff},
                                   {"shrink", config.shrink},
                                   {"turn", config.turn},
                                   {"confidence", config.confidence},
                                   {"look_ahead", config.look_ahead}})
    if (!std::isfinite(value)) throw ConfigError(fmt::format("ps.{}={} is not finite; use a number such as 1.0", key, value));
  for (const auto& [key, value] : {std::pair{"outer_momentum", config.outer_momentum}, {"outer_beta2", config.outer_beta2}})
    if (value >= 1) throw ConfigError(fmt::format("ps.{}={} never decays; use less than 1, for example 0.9", key, value));
  const double most = 1.0 / static_cast<double>(config.momentum_every);
  if (config.momentum_share > most)
    throw ConfigError(fmt::format("ps.momentum_share={} is above 1 / ps.momentum_every={:.4g}; use at most that, or fewer pushes",
                                  config.momentum_share, most));
}

}  // namespace paceline::ps
