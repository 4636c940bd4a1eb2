// Where the memory of a training run goes, by formulas: for each kind of rank and each category what a mesh, a stage of ZeRO's, the type of
// storage and recomputation make of a network. No LibTorch: a planner reads the same numbers. docs/memory.md explains them.
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
// Offloaded, masters and moments are (8 + 4 k) M, or M/d from stage 1 on, in host memory: parameters, gradients and moments in fp32. On a
// GPU, gradients from stage 2 on have the two largest units.
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

/// What a compressor of gradients holds beside them, in bytes.
struct Compression {
  double kept = 0;   // for each parameter, from step to step: what was not sent, say
  double codes = 0;  // for each element of the largest bucket
  double each = 0;   // the same for each data-parallel rank, whose codes all arrive

  std::int64_t bytes(std::int64_t parameters, std::int64_t bucket, int data) const {
    return static_cast<std::int64_t>(kept * static_cast<double>(parameters) + (codes + each * data) * static_cast<double>(bucket));
  }
  bool operator==(const Compression&) const = default;
};

/// What decides how much a rank holds.
struct Plan {
  int data = 1, pipeline = 1, tensor = 1, zero = 0;
  std::int64_t samples = 1;        // of a step, for one data-parallel rank, the largest where they differ
  std::int64_t batch = 0;          // of a step, for all of them; 0: as many for each
  std::int64_t micro_batches = 1;  // that they come in
  std::string schedule = "1f1b";   // of the pipeline
  int chunks = 1;                  // of the network on each rank of an interleaved one
  std::vector<double> times = {};  // that units take, measured; empty: counted
  std::int64_t limit = 0;          // bytes that a rank may need, which the cut into stages obeys; 0: none
  bool sequence = false;           // the tensor axis shares positions, too
  std::string hybrid = "none";     // layers that data-parallel ranks share (graph/hybrid.h)
  bool shared_updates = false;     // data-parallel ranks share moments and masters without ZeRO as well
  bool gpu = false;                // pages come and go two units at a time, gradients travel in one bucket
  bool offload = false;            // masters, moments and their gradients lie in host memory, beside a GPU
  std::int64_t storage = 4;        // bytes of a stored parameter
  bool fp32_gradients = false;     // whatever parameters are stored in; otherwise gradients are stored like them
  std::int64_t product = 4;        // bytes of an operand of the products, and of activations
  bool fp16 = false;               // what is stored; no products are made in it
  int moments = 2;                 // fp32 tensors that the optimizer keeps for each parameter
  std::string recompute = "none";
  Kernels kernels = {};
  std::int64_t bucket = 8 << 20;  // bytes that travel at a time
  bool bf16_gradients = false;    // they travel in bf16, from buffers of their own, and are added in fp32
  Compression compression = {};   // with several data-parallel ranks

  int ranks() const { return data * pipeline * tensor; }
  std::int64_t gradient() const { return fp32_gradients ? 4 : storage; }  // bytes of a stored one
  /// Whether the products read copies of the parameters, in another type than these are stored in.
  bool copies() const { return fp16 || product != storage; }
};

/// Ranks that hold the same: those of a pipeline's stage.
struct RankKind {
  std::string name;  // "stage 1 of 2", "every rank"
  int ranks = 1;
  std::vector<graph::Units> held;  // its chunks of the network
  std::int64_t parameters = 0;     // elements, before ZeRO shares them
  std::int64_t in_flight = 1;      // micro-batches of which it holds activations, each of one chunk
  Bytes bytes;
};

/// What many plans of one network need: keeps what they have in common, so that thousands of them are cheap. The network outlives it. Not
/// thread-safe.
class Estimator {
 public:
  explicit Estimator(const graph::Graph& graph);
  ~Estimator();

  /// As the functions below.
  std::vector<graph::Units> cut_stages(const Plan& plan) const;
  std::vector<RankKind> estimate(const Plan& plan, const std::vector<graph::Units>& stages = {}) const;

 private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

/// The units of each virtual stage of the pipeline: of the cuts that the limit allows, the one whose slowest stage is fastest. Where none
/// fits, the fastest of all; its estimated memory then exceeds the limit. ConfigError if there are more stages than units.
std::vector<graph::Units> cut_stages(const graph::Graph& graph, const Plan& plan);

/// `stages`: as cut_stages() has them, which makes them where they are empty.
std::vector<RankKind> estimate(const graph::Graph& graph, const Plan& plan, const std::vector<graph::Units>& stages = {});
/// The kind that holds most.
const RankKind& largest(const std::vector<RankKind>& kinds);

/// As the decks count, for fp16 and Adam: 2M parameters, 2M gradients, and 16M of fp32 gradients, variance, momentum and parameters.
struct SlidesCount {
  std::int64_t parameters = 0, gradients = 0, optimizer = 0;
  std::int64_t total() const { return parameters + gradients + optimizer; }
};
SlidesCount slides_count(std::int64_t parameters, int zero, int workers);

/// "1.23 GB", "20 GB": three digits, powers of ten as the decks have them.
std::string readable(std::int64_t bytes);

}  // namespace paceline::memory
