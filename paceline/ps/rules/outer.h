// Asynchronous local steps: a worker makes `ps.period` steps with an optimizer of its own from the parameters θ̄ that it pulled, and pushes
// the pseudo-gradient Δ = θ̄ − θ. Each rule below makes an outer step of it; τ is the number of outer steps since the pull.
//
//   async_nesterov      m ← μ m + Δ;  θ ← θ − η (Δ + μ m)                       unstable under delay: the baseline
//   delayed_nesterov    θ ← θ − η Δ/N at every push, the momentum at every N-th  Liu et al., arXiv 2401.09135
//   adam_decay, cgad    Adam on σ(τ) Δ                                           arXiv 2605.09126
//   heloco              Δ turned towards m, tensor by tensor; then Nesterov      arXiv 2606.00271
//   look_ahead          workers pull where the momentum will have carried θ      Ajanthan et al., MCDC at ICLR 2025
//
// docs/local_steps.md says what is the papers' and what is our reading of them.
#pragma once

#include <cstdint>
#include <string>

#include "paceline/base/config.h"

namespace paceline::ps {

/// The settings of [ps] for these rules.
struct OuterConfig {
  double outer_rate = 0;                         // η; 0: 0.7, of cgad and adam_decay 0.005
  double outer_momentum = 0.9;                   // μ, β, β₁
  double outer_beta2 = 0.95;                     // cgad, adam_decay
  std::int64_t momentum_every = 4;               // delayed_nesterov: N
  double momentum_share = 0;                     // delayed_nesterov: c
  double age_decay = 0.05;                       // cgad, adam_decay: α
  double age_cutoff = 0;                         // cgad: τ_c; 0: four times the workers
  double keep_cosine = 0.2;                      // heloco: c_ok
  double shrink = 1, most_shrink = 1, turn = 1;  // heloco: k_s, β_max, k_d
  double confidence = 1;                         // heloco: κ
  double look_ahead = 0;                         // look_ahead: outer steps; 0: the mean staleness so far

  void describe(Section& section);
};

/// ConfigError if fields do not fit together.
void validate(const OuterConfig& config);

}  // namespace paceline::ps
