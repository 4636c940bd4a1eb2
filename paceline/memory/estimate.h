// Where the memory of a training run goes, by formulas: for each kind of rank and each category, the bytes of a network with a given mesh,
// ZeRO stage, storage type and recomputation. No LibTorch, so that the planner can use the same numbers. docs/memory.md explains them.
//
// M parameters, s bytes of a stored parameter (4; 2 in fp16 and bf16), g of a stored gradient (s, or 4), d data-parallel ranks, per rank of
// the pipeline and tensor axes:
//
//                 none     ZeRO 1    ZeRO 2    ZeRO 3
//   parameters    s M      s M       s M       s M/d + the others' parts of the two largest units
//   gradients     g M      g M       g M/d + the largest unit (2: and two buckets); where g = 2, the own part is among the masters
//   masters       8 M      8 M/d     8 M/d     8 M/d           4 for parameters in fp32 where s = 2, 4 for gradients where g = 2
//   moments       4 k M    4 k M/d   4 k M/d   4 k M/d         k: of the optimizer (Adam 2, momentum 1)
//
// With offloading, masters and moments take (8 + 4 k) M of host memory, or (8 + 4 k) M/d from stage 1 on: parameters, gradients and moments
// in fp32. On a GPU, gradients from stage 2 on include the two largest units.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/graph/graph.h"
#include "paceline/graph/stages.h"
#include "paceline/memory/activations.h"

namespace paceline::memory {

enum class Category : std::uint8_t { parameters, gradients, masters, moments, activations, buffers, communication, host };
inline constexpr std::size_t kCategories = 8;
std::string_view name_of(Category category);

struct Bytes {
  std::array<std::int64_t, kCategories> of = {};

  std::int64_t& operator[](Category category) { return of[static_cast<std::size_t>(category)]; }
  std::int64_t operator[](Category category) const { return of[static_cast<std::size_t>(category)]; }
  std::int64_t total() const;  // of the device's memory: all but `host`
  std::int64_t state() const;  // parameters, gradients, masters and moments
};

/// The memory of a gradient compressor, in bytes.
struct Compression {
  double kept = 0;   // for each parameter, from step to step: the residual, for example
  double codes = 0;  // for each element of the largest bucket
  double each = 0;   // the same, times the data-parallel ranks, since the codes of all of them arrive

  std::int64_t bytes(std::int64_t parameters, std::int64_t bucket, int data) const {
    return static_cast<std::int64_t>(kept * static_cast<double>(parameters) + (codes + each * data) * static_cast<double>(bucket));
  }
  bool operator==(const Compression&) const = default;
};

/// The settings that determine how much memory a rank needs.
struct Plan {
  int data = 1, pipeline = 1, tensor = 1, zero = 0;
  std::int64_t samples = 1;        // of a step, for one data-parallel rank; the largest if ranks differ
  std::int64_t batch = 0;          // of a step, for all data-parallel ranks; 0: `samples` for each
  std::int64_t micro_batches = 1;  // per step
  std::string schedule = "1f1b";   // of the pipeline
  int chunks = 1;                  // of the network on each rank of an interleaved one
  std::vector<double> times = {};  // of the units, measured; empty: counted operations are used
  std::int64_t limit = 0;          // bytes that a rank may need; the cut into stages respects it. 0: no limit
  bool sequence = false;           // the tensor axis shares positions, too
  std::string hybrid = "none";     // layers that data-parallel ranks share (graph/hybrid.h)
  bool shared_updates = false;     // data-parallel ranks share moments and masters without ZeRO as well
  bool gpu = false;                // pages are mapped and released two units at a time; gradients are sent in one bucket
  bool offload = false;            // GPU: masters, moments and their gradients are in host memory
  std::int64_t storage = 4;        // bytes of a stored parameter
  bool fp32_gradients = false;     // gradients are stored in fp32; otherwise in the type of the parameters
  std::int64_t product = 4;        // bytes of an operand of a matrix product, and of an activation
  bool fp16 = false;               // parameters are stored in fp16, in which no products are computed
  int moments = 2;                 // fp32 tensors that the optimizer keeps for each parameter
  std::string recompute = "none";
  Kernels kernels = {};
  std::int64_t bucket = 8 << 20;  // bytes that are sent at a time
  bool bf16_gradients = false;    // gradients are sent in bf16, from separate buffers, and added in fp32
  Compression compression = {};   // of gradients that are sent; zero where none are

  int ranks() const { return data * pipeline * tensor; }
  std::int64_t gradient() const { return fp32_gradients ? 4 : storage; }  // bytes of a stored one
  /// Whether matrix products read copies of the parameters, in another type than the stored one.
  bool copies() const { return fp16 || product != storage; }
};

/// Ranks with the same memory: those of a pipeline stage.
struct RankKind {
  std::string name;  // "stage 1 of 2", "every rank"
  int ranks = 1;
  std::vector<graph::Units> held;  // its chunks of the network
  std::int64_t parameters = 0;     // elements, before ZeRO shares them
  std::int64_t in_flight = 1;      // micro-batches whose activations it holds, each for one chunk
  Bytes bytes;
};

/// Estimates many plans of one network. Caches what they have in common, so that thousands of them are cheap. The network must outlive it.
/// Not thread-safe.
class Estimator {
 public:
  explicit Estimator(const graph::Graph& graph);
  ~Estimator();

  /// Like the functions below.
  std::vector<graph::Units> cut_stages(const Plan& plan) const;
  std::vector<RankKind> estimate(const Plan& plan, const std::vector<graph::Units>& stages = {}) const;

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

/// The units of each virtual stage of the pipeline: of the cuts that the limit allows, the one whose slowest stage is fastest. If none
/// fits, the fastest of all cuts, whose estimated memory then exceeds the limit. ConfigError if there are more stages than units.
std::vector<graph::Units> cut_stages(const graph::Graph& graph, const Plan& plan);

/// `stages`: the result of cut_stages(), which is called if they are empty.
std::vector<RankKind> estimate(const graph::Graph& graph, const Plan& plan, const std::vector<graph::Units>& stages = {});
/// The kind that needs the most memory.
const RankKind& largest(const std::vector<RankKind>& kinds);

/// The count of the slides, for fp16 and Adam: 2M parameters, 2M gradients, and 16M of fp32 gradients, variance, momentum and parameters.
struct SlidesCount {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
  std::int64_t total() const { return parameters + gradients + optimizer; }
};
SlidesCount slides_count(std::int64_t parameters, int zero, int workers);

/// "1.23 GB", "20 GB": three digits, and powers of ten, as in the slides.
std::string readable(std::int64_t bytes);

}  // namespace paceline::memory
