// The time of a layer's passes by the roofline of a device: every layer that multiplies matrices is a set of products, and a product takes
// flops / min(μ·I, γ), where I is the arithmetic intensity of one block (slides of Castelló et al., CCGRID 2019).
//
//             C = m × n            k             fully connected: rows of the batch, features      convolution, as im2col
//   forward   out × samples        in            n_l × b × n_{l−1}                                 c_l × b·h·w × c_{l−1}·kh·kw
//   gradient  in × samples         out           n_{l−1} × b × n_l                                 c_{l−1}·kh·kw × b·h·w × c_l
//   weights   out × in             samples       n_l × n_{l−1} × b                                 c_l × c_{l−1}·kh·kw × b·h·w
//
// Layers without matrix products cost nothing, as in the slides. The first layer computes no gradient of its input.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "paceline/graph/graph.h"
#include "paceline/perf/cluster.h"

namespace paceline::perf {

enum class Phase { forward, gradient, weights };  // FP, GC, WU of the slides
inline constexpr Phase kPhases[] = {Phase::forward, Phase::gradient, Phase::weights};
std::string_view name_of(Phase phase);

/// C(m×n) += A(m×k)·B(k×n), `count` times.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0, count = 1;
  bool operator==(const Gemm&) const = default;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(count);
  }
};

/// Whether C is counted once, or twice because it is read before it is written. The slides have both.
enum class OutputTraffic { once, twice };
std::string_view name_of(OutputTraffic traffic);  // "mn", "2mn"

/// The properties of a device that the roofline needs.
struct Roofline {
  double flops_per_s = 0, bytes_per_s = 0;
  Blocks blocks;
  OutputTraffic traffic = OutputTraffic::once;

  double ridge() const { return flops_per_s / bytes_per_s; }  // flop/B above which a product is compute-bound
  double intensity(const Gemm& gemm) const;                   // of a block, flop/B
  double seconds(const Gemm& gemm) const;
};
Roofline roofline_of(const Device& device, OutputTraffic traffic);

/// The products of one layer for one batch.
struct LayerWork {
  std::string name;
  std::int64_t parameters = 0;  // its own and those of the norms after it, which share its allreduce
  std::array<std::vector<Gemm>, 3> products{};
  std::array<double, 3> outputs{}, tensors{};  // elements of C, and of A, B and C together, as real tensors without the copies of im2col

  double flops(Phase phase) const;
  double seconds(Phase phase, const Roofline& roofline) const;
  const std::vector<Gemm>& of(Phase phase) const { return products[static_cast<std::size_t>(phase)]; }
};

/// The products of one layer; empty if it has none. Includes the gradient of the first layer's input.
std::optional<LayerWork> layer_work(const graph::Graph& graph, std::size_t layer, std::int64_t batch);
/// The layers with matrix products, in the order of the forward pass.
std::vector<LayerWork> work_of(const graph::Graph& graph, std::int64_t batch);

/// Sums over layers of one phase.
struct Intensity {
  double blocked = 0;       // flops / bytes that the blocks move
  double whole = 0;         // flops / bytes of the real tensors
  double flops_per_s = 0;   // reached
  double memory_bound = 0;  // share of the time spent in products below the ridge
};
Intensity intensity_of(const std::vector<LayerWork>& work, Phase phase, const Roofline& roofline);

}  // namespace paceline::perf
