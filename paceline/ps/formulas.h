// What the server does to one element: one source, compiled for the CPU's vectors and for CUDA (kernels.h runs it over ranges).
//
// A formula is a small type that holds pointers and numbers; formula(i) processes element i and accesses no other.
#pragma once

#include <cmath>
#include <cstdint>

#include "paceline/optim/rules/element.h"

namespace paceline::ps {

using optim::product;
using optim::square_root;

/// to ← from
struct Copy {
  float* to;
  const float* from;
  PACELINE_ELEMENT void operator()(std::int64_t i) const { to[i] = from[i]; }
};

/// to ← keep · to + share · from
struct Blend {
  float* to;
  const float* from;
  float keep, share;
  PACELINE_ELEMENT void operator()(std::int64_t i) const { to[i] = product(keep, to[i]) + product(share, from[i]); }
};

/// to ← share · from
struct Scale {
  float* to;
  const float* from;
  float share;
  PACELINE_ELEMENT void operator()(std::int64_t i) const { to[i] = product(share, from[i]); }
};

/// Zheng et al. 2017, constant: g + λ₀ g² (w − w_bak)
struct DelayCompensation {
  float* out;
  const float *gradient, *parameters, *pulled;
  float lambda;
  PACELINE_ELEMENT void operator()(std::int64_t i) const {
    const float g = gradient[i];
    out[i] = g + product(product(lambda, product(g, g)), parameters[i] - pulled[i]);
  }
};

/// Zheng et al. 2017, adaptive: MS ← m·MS + (1−m) g²; g + λ₀/√(MS+ε) · g² (w − w_bak)
struct AdaptiveDelayCompensation {
  float* out;
  const float *gradient, *parameters, *pulled;
  float* mean_square;
  float lambda, decay, fresh, epsilon;
  PACELINE_ELEMENT void operator()(std::int64_t i) const {
    const float g = gradient[i], square = product(g, g);
    const float mean = product(decay, mean_square[i]) + product(fresh, square);
    mean_square[i] = mean;
    out[i] = g + product(product(lambda / square_root(mean + epsilon), square), parameters[i] - pulled[i]);
  }
};

/// Barkai et al. 2020: g / (1 + |w − w_bak| / C), with C the running RMS of the steps, or `reach` times that of steps of rate 1. Leaves w
/// in w_bak, for StepSize.
struct GapPenalty {
  float* out;
  const float *gradient, *parameters;
  float* pulled;
  const float* mean_square;
  float correction, reach, epsilon;  // 1 / (1 − γᵗ); 1, or the largest rate
  PACELINE_ELEMENT void operator()(std::int64_t i) const {
    const float moved = parameters[i] - pulled[i];
    const float usual = product(reach, square_root(product(mean_square[i], correction))) + epsilon;
    pulled[i] = parameters[i];
    out[i] = gradient[i] / (1 + (moved < 0 ? -moved : moved) / usual);
  }
};

/// mean_square ← γ · mean_square + (1 − γ) ((after − before) / rate)²
struct StepSize {
  float* mean_square;
  const float *after, *before;
  float decay, fresh, inverse_rate;  // 1 where steps are measured as they were made
  PACELINE_ELEMENT void operator()(std::int64_t i) const {
    const float step = product(inverse_rate, after[i] - before[i]);
    mean_square[i] = product(decay, mean_square[i]) + product(fresh, product(step, step));
  }
};

/// Hakimi et al. 2019 (DANA): a velocity for each worker, and their sum.  v ← μ v + g + λ w;  Σ ← Σ + Δv;  w ← w − η v
struct DanaStep {
  float *parameters, *velocity, *sum;
  const float* gradient;
  float rate, momentum, decay, scale;
  PACELINE_ELEMENT void operator()(std::int64_t i) const {
    const float before = velocity[i];
    const float after = product(momentum, before) + (product(scale, gradient[i]) + product(decay, parameters[i]));
    velocity[i] = after;
    sum[i] += after - before;
    parameters[i] -= product(rate, after);
  }
};

/// What a DANA worker receives: where the parameters will be once all velocities have acted.  w − η μ Σ
struct DanaLookAhead {
  float* to;
  const float *parameters, *sum;
  float reach;  // η μ
  PACELINE_ELEMENT void operator()(std::int64_t i) const { to[i] = parameters[i] - product(reach, sum[i]); }
};

/// Zhang et al. 2015 (EASGD): e = α (x − x̃);  x ← x − e;  x̃ ← x̃ + e
struct ElasticStep {
  float *centre, *replica;
  float alpha;
  PACELINE_ELEMENT void operator()(std::int64_t i) const {
    const float pull = product(alpha, replica[i] - centre[i]);
    replica[i] -= pull;
    centre[i] += pull;
  }
};

/// The outer step of asynchronous local steps, with Nesterov's momentum:  d = keep · Δ + turn · m;  m ← μ m + d;  θ ← θ − η (d + μ m)
struct OuterNesterov {
  float *parameters, *momentum;
  const float* delta;
  float rate, decay, keep, turn;  // η, μ; 1 and 0 leave Δ as it is
  PACELINE_ELEMENT void operator()(std::int64_t i) const {
    const float d = product(keep, delta[i]) + product(turn, momentum[i]);
    const float m = product(decay, momentum[i]) + d;
    momentum[i] = m;
    parameters[i] -= product(rate, d + product(decay, m));
  }
};

/// Liu et al. 2024, between two turns of the momentum:  S ← S + Δ;  θ ← θ − η (a β m + Δ/N)
struct DelayedNesterov {
  float *parameters, *momentum, *sum;
  const float* delta;
  float rate, decay, share, activation;  // η, β, 1/N, a = c
  PACELINE_ELEMENT void operator()(std::int64_t i) const {
    sum[i] += delta[i];
    parameters[i] -= product(rate, product(activation, product(decay, momentum[i])) + product(share, delta[i]));
  }
};

/// Its N-th push:  m ← β m + (S + Δ)/N;  S ← 0;  θ ← θ − η (a β m + Δ/N)
struct DelayedNesterovTurn {
  float *parameters, *momentum, *sum;
  const float* delta;
  float rate, decay, share, activation;  // a = 1 − cN + c
  PACELINE_ELEMENT void operator()(std::int64_t i) const {
    const float m = product(decay, momentum[i]) + product(share, sum[i] + delta[i]);
    momentum[i] = m;
    sum[i] = 0;
    parameters[i] -= product(rate, product(activation, product(decay, m)) + product(share, delta[i]));
  }
};

/// Adam on σ Δ:  m ← β₁ m + (1−β₁) σΔ;  v ← β₂ v + (1−β₂) (σΔ)²;  θ ← θ − η/(1−β₁ᵗ) · m / (√v/√(1−β₂ᵗ) + ε)
struct OuterAdam {
  float *parameters, *first, *second;
  const float* delta;
  float scale, rate, beta1, fresh1, beta2, fresh2, root_correction2, epsilon;  // σ, η/(1−β₁ᵗ)
  PACELINE_ELEMENT void operator()(std::int64_t i) const {
    const float d = product(scale, delta[i]);
    const float m = product(beta1, first[i]) + product(fresh1, d), v = product(beta2, second[i]) + product(product(fresh2, d), d);
    first[i] = m, second[i] = v;
    parameters[i] -= product(rate, m / (product(square_root(v), root_correction2) + epsilon));
  }
};

/// m ← μ m + Δ;  θ ← θ − η m
struct OuterHeavyBall {
  float *parameters, *momentum;
  const float* delta;
  float rate, decay;
  PACELINE_ELEMENT void operator()(std::int64_t i) const {
    const float m = product(decay, momentum[i]) + delta[i];
    momentum[i] = m;
    parameters[i] -= product(rate, m);
  }
};

#define PACELINE_PS_FORMULAS(X) \
  X(Copy)                       \
  X(Blend)                      \
  X(Scale)                      \
  X(DelayCompensation)          \
  X(AdaptiveDelayCompensation)  \
  X(GapPenalty)                 \
  X(StepSize)                   \
  X(DanaStep) X(DanaLookAhead) X(ElasticStep) X(OuterNesterov) X(DelayedNesterov) X(DelayedNesterovTurn) X(OuterAdam) X(OuterHeavyBall)

}  // namespace paceline::ps
