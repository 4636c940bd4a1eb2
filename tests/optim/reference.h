// The optimizers once more, written one element at a time in double from their papers' formulas, to compare the fused passes with.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/base/random.h"
#include "paceline/optim/optimizer.h"

namespace paceline::optim {

/// An arena in double, and a step of each optimizer on it.
struct Reference {
  OptimConfig config;
  std::vector<Segment> segments;
  std::vector<double> weights, first, second;  // first: velocity or first moment

  void step(const std::vector<double>& gradients, double rate, double t) {
    for (const Segment& segment : segments) {
      const double decay = segment.decay ? config.weight_decay : 0;
      const auto begin = static_cast<std::size_t>(segment.offset), end = begin + static_cast<std::size_t>(segment.count);
      std::vector<double> directions(weights.size());
      const auto norm = [&](const std::vector<double>& values) {
        double sum = 0;
        for (std::size_t i = begin; i < end; ++i) sum += values[i] * values[i];
        return std::sqrt(sum);
      };
      const bool velocity = config.name == "sgd" || config.name == "lars";
      double trust = 1;
      if (config.name == "lars" && segment.decay && norm(weights) > 0 && norm(gradients) > 0)
        trust = config.trust * norm(weights) / (norm(gradients) + decay * norm(weights));
      for (std::size_t i = begin; i < end; ++i) {
        if (velocity) {
          const double g = trust * (gradients[i] + decay * weights[i]);
          first[i] = config.momentum * first[i] + g;
          directions[i] = config.nesterov ? g + config.momentum * first[i] : first[i];
        } else if (config.name == "adagrad") {
          const double g = gradients[i] + decay * weights[i];
          first[i] += g * g;
          directions[i] = g / (std::sqrt(first[i]) + config.epsilon);
        } else if (config.name == "rmsprop" || config.name == "rmsprop_warmup") {
          const double g = gradients[i] + decay * weights[i];
          first[i] = config.beta2 * first[i] + (1 - config.beta2) * g * g;
          const double scaled = 1 / (std::sqrt(first[i]) + config.epsilon), x = (t - config.transition_center) / config.transition_period;
          const double sgd = x < 0 ? 0.5 * std::exp(2 * x) : std::min(0.5 + x, 1.0);
          const double factor = config.name == "rmsprop" ? scaled : sgd + (1 - sgd) * config.rmsprop_rate / rate * scaled;
          directions[i] = second[i] = config.momentum * second[i] + factor * g;
        } else {
          const double g = gradients[i] + (config.name == "adam" ? decay * weights[i] : 0);
          first[i] = config.beta1 * first[i] + (1 - config.beta1) * g;
          second[i] = config.beta2 * second[i] + (1 - config.beta2) * g * g;
          const double m = first[i] / (1 - std::pow(config.beta1, t)), v = second[i] / (1 - std::pow(config.beta2, t));
          directions[i] = m / (std::sqrt(v) + config.epsilon) + (config.name == "adam" ? 0 : decay * weights[i]);
        }
      }
      if (config.name == "lamb" && segment.decay && norm(weights) > 0 && norm(directions) > 0) trust = norm(weights) / norm(directions);
      for (std::size_t i = begin; i < end; ++i) weights[i] -= rate * (config.name == "lamb" ? trust : 1) * directions[i];
    }
  }
};

/// Buffers of an arena on the host, and the optimizer's view of them.
struct Arena {
  std::vector<float> parameters, gradients;
  std::vector<std::vector<float>> state;

  Arena(std::size_t size, std::size_t states, std::uint64_t seed = 1)
      : parameters(size), gradients(size), state(states, std::vector<float>(size)) {
    RandomStream random(seed, Purpose::test);
    for (float& value : parameters) value = random.normal();
    draw_gradients(0);
  }

  void draw_gradients(std::uint64_t step) {
    RandomStream random(7, Purpose::test, step);
    for (float& value : gradients) value = 0.1f * random.normal();
  }

  Buffers buffers() {
    Buffers all{.parameters = parameters.data(), .gradients = gradients.data()};
    for (auto& values : state) all.state.push_back(values.data());
    return all;
  }

  bool operator==(const Arena&) const = default;
};

/// Tensors of odd lengths, one of them long enough for several threads, with gaps between some; every third is exempt from decay.
inline std::vector<Segment> odd_segments() {
  std::vector<Segment> segments;
  std::int64_t offset = 3;
  for (std::int64_t count : {1, 7, 64, 4095, 4096, 4097, 30, 40'001, 129, 8'192, 5}) {
    segments.push_back({.offset = offset, .count = count, .decay = segments.size() % 3 != 2});
    offset += count + (segments.size() % 4 == 0 ? 5 : 0);
  }
  return segments;
}

inline std::size_t arena_size(const std::vector<Segment>& segments) {
  return static_cast<std::size_t>(segments.back().offset + segments.back().count + 2);
}

/// Every optimizer with each of its variants.
inline std::vector<OptimConfig> all_variants() {
  std::vector<OptimConfig> variants;
  for (const auto& row : optimizers()) {
    OptimConfig config{.name = std::string(row.key), .weight_decay = 0.01};
    if (config.name == "rmsprop_warmup") config.transition_center = 3, config.transition_period = 3;  // five steps see all three pieces
    if (config.name.starts_with("rmsprop")) config.beta2 = 0.9, config.rmsprop_rate = 0.01;
    variants.push_back(config);
    if (config.name == "rmsprop") variants.push_back((config.momentum = 0, config));
    if (config.name != "sgd" && config.name != "lars") continue;
    config.nesterov = true;
    variants.push_back(config);
    config.nesterov = false;
    config.momentum = 0;
    variants.push_back(config);
  }
  return variants;
}

inline std::string variant_name(const OptimConfig& config) {
  return config.name + (config.nesterov ? "_nesterov" : config.momentum == 0 ? "_plain" : "");
}

}  // namespace paceline::optim
