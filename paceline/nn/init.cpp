#include "paceline/nn/init.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>

#include "paceline/base/random.h"

namespace paceline::nn {
namespace {

using graph::Init;
using graph::Kind;

constexpr std::int64_t kChunk = 1 << 16;
constexpr std::uint64_t kDrawsANormal = 4;  // 32-bit draws of RandomStream::normal

/// Fills `out` chunk by chunk; every chunk seeks to its own position in the parameter's stream, so the number of threads does not matter.
template <class Draw>
void fill(at::Tensor& out, std::uint64_t seed, std::size_t index, std::uint64_t draws_a_value, Draw draw) {
  auto* values = out.data_ptr<float>();
  const std::int64_t count = out.numel();
  at::parallel_for(0, (count + kChunk - 1) / kChunk, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      RandomStream stream(seed, Purpose::init, index);
      stream.seek(static_cast<std::uint64_t>(chunk * kChunk) * draws_a_value);
      const std::int64_t end = std::min(count, (chunk + 1) * kChunk);
      for (std::int64_t i = chunk * kChunk; i < end; ++i) values[i] = draw(stream);
    }
  });
}

bool has_projection(Kind kind) { return kind == Kind::attention || kind == Kind::experts; }
bool is_norm(Kind kind) { return kind == Kind::batch_norm || kind == Kind::layer_norm; }

void draw_weight(const graph::Layer& layer, const graph::Parameter& parameter, std::uint64_t seed, std::size_t index, at::Tensor& out) {
  const auto& shape = parameter.shape;
  const std::size_t out_dim = parameter.spread ? 1 : 0;
  const double receptive = shape.size() == 4 ? static_cast<double>(shape[2] * shape[3]) : 1.0;
  const double fan_in = static_cast<double>(shape[out_dim + 1]) * receptive, fan_out = static_cast<double>(shape[out_dim]) * receptive;
  const auto normal = [&](double deviation) {
    fill(out, seed, index, kDrawsANormal, [deviation](RandomStream& s) { return static_cast<float>(deviation * s.normal()); });
  };
  switch (layer.init) {
    case Init::kaiming_fan_out: return normal(std::sqrt(2 / fan_out));
    case Init::normal:
      return normal(parameter.name.ends_with("c_proj.weight") && has_projection(layer.kind) ? layer.projection_std : layer.init_std);
    case Init::truncated_normal: {
      // By inversion: uniform between Φ(−2) and Φ(2); always two draws, so chunks stay independent.
      const double low = 0.02275013194817921, scale = layer.init_std;
      fill(out, seed, index, 2, [low, scale](RandomStream& s) {
        const double u = low + (1 - 2 * low) * s.uniform_double();
        // Newton's method on Φ(x) = u, from 0; five steps reach double precision between −2 and 2.
        double x = 0;
        for (int i = 0; i < 6; ++i) x -= (0.5 * std::erfc(-x * M_SQRT1_2) - u) * std::sqrt(2 * M_PI) * std::exp(x * x / 2);
        return static_cast<float>(scale * std::clamp(x, -2.0, 2.0));
      });
      return;
    }
    case Init::zero: out.zero_(); return;
    case Init::standard: break;
  }
  if (layer.kind == Kind::embedding) return normal(1.0);
  const auto bound = static_cast<float>(1 / std::sqrt(fan_in));  // kaiming_uniform with a = √5
  fill(out, seed, index, 1, [bound](RandomStream& s) { return s.uniform(-bound, bound); });
}

void draw_bias(const graph::Layer& layer, double fan_in, std::uint64_t seed, std::size_t index, at::Tensor& out) {
  if (layer.init != Init::standard && layer.init != Init::truncated_normal) {
    out.zero_();
    return;
  }
  const auto bound = static_cast<float>(1 / std::sqrt(fan_in));
  fill(out, seed, index, 1, [bound](RandomStream& s) { return s.uniform(-bound, bound); });
}

}  // namespace

std::vector<std::int64_t> HeldParameter::shape() const {
  std::vector<std::int64_t> result = parameter.shape;
  if (slice) result.at(static_cast<std::size_t>(slice->dim)) = slice->count();
  return result;
}

void initialise(const graph::Graph& graph, std::span<const HeldParameter> held, std::uint64_t seed, tensor::Arena& parameters,
                tensor::Arena& statistics) {
  at::NoGradGuard no_grad;
  std::size_t trainable = 0, statistic = 0;
  double fan_in = 1;  // of the weight that was just drawn, for its bias
  for (const auto& [parameter, index, slice] : held) {
    const graph::Layer& layer = graph.layers().at(static_cast<std::size_t>(parameter.layer));
    if (!parameter.trainable) {
      statistics.parameter(statistic++).fill_(parameter.name.ends_with("running_var") ? 1 : 0);
      continue;
    }
    at::Tensor values = at::empty(parameter.shape, at::kFloat);
    if (is_norm(layer.kind)) {
      values.fill_(parameter.name.ends_with("weight") && layer.init != Init::zero ? 1 : 0);
    } else if (parameter.decay) {
      const std::int64_t out = parameter.spread ? parameter.shape[0] * parameter.shape[1] : parameter.shape[0];  // each expert its own
      fan_in = static_cast<double>(values.numel()) / static_cast<double>(out);
      draw_weight(layer, parameter, seed, index, values);
    } else {
      draw_bias(layer, fan_in, seed, index, values);
    }
    parameters.parameter(trainable++).copy_(slice ? tensor::cut(values, *slice) : values);
  }
}

}  // namespace paceline::nn
