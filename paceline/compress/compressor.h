// Compressors: gradients in fewer bytes.
//
// Two families. A Coder turns values into bytes that only decoding can read (quantisers, sparsifiers): the mean of M workers is computed
// from their M decoded codes. A Linear compressor sends numbers that can be added directly, in one or more rounds of an allreduce (fp16,
// bf16, PowerSGD). Nothing here communicates: data_parallel/exchange.cpp carries the codes, and so does a push to a parameter server
// (ps/transports/push_coder.h).
//
// Error feedback (a = g + e; send Q(a); e = a − Q(a)) needs no buffer beyond the residual: a worker adds g to its residual (feedback.h) and
// encodes the residual, and encode() leaves there what the code does not contain.
//
// Invariant: values before = decoded code + values after, up to one rounding.
//
// A NaN or an infinity is never hidden: quantisers encode NaN for all values that share its scale (and leave the values unchanged),
// sparsifiers send it, and sums propagate it, so it is visible in the mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paceline/base/config.h"
#include "paceline/base/registry.h"

namespace paceline::compress {

/// [compress] of a recipe: the settings of all compressors; each reads its own.
struct CompressConfig {
  std::string feedback = "auto";  // on, off, auto: keep what was not sent and add it to the next gradient
  std::int64_t block = 512;       // int8, dynamic8: values that share a scale
  double density = 0;             // topk; dgc: at the end of its warm-up; 0: 1%, for dgc 0.1%
  double warmup_epochs = 5;       // dgc: density falls from 25% to `density`, geometrically
  double threshold = 0.001;       // threshold: τ
  double sign_scale = 0;          // sign: the value of a vote; 0: the mean magnitude
  double clip_deviations = 2.5;   // ternary: clip at this many standard deviations
  double dgc_clip = 0;            // dgc: clip a worker's gradient to this norm / √workers, a range to its share; 0: no
  std::int64_t rank = 2;          // powersgd

  void describe(Section& section);
};

/// One tensor, or a part of one, in a range of the arena; offsets are from the range's beginning. Gaps between parts hold zeros.
struct Part {
  std::int64_t offset = 0, count = 0;
  std::int64_t rows = 1, columns = 0;  // as a matrix; rows = 1 for vectors and for parts of tensors
};

/// The parts of a range: ascending, not overlapping. The encoder and the decoder have the same layout.
struct RangeLayout {
  std::vector<Part> parts = {};
  std::int64_t length = 0;  // elements, gaps included
  /// Elements of the parts, without gaps.
  std::int64_t elements() const;
  /// The parts in [begin, end), cut at its ends, with offsets from `begin`.
  RangeLayout slice(std::int64_t begin, std::int64_t end) const;
};

/// What changes from step to step.
struct CodingContext {
  std::uint64_t seed = 0;  // of the run
  int rank = 0;            // of the worker
  std::int64_t step = 0;
  double epoch = 0;
  std::uint64_t place = 0;  // distinguishes the ranges of one step
};

/// Has working memory, so each thread needs its own Coder; codes do not depend on what was coded before.
class Coder {
 public:
  virtual ~Coder() = default;
  /// The maximum size of a code of such a range, in bytes.
  virtual std::int64_t bound(const RangeLayout& layout) const = 0;
  /// Writes the code, of at most bound() bytes, and returns its size. `values` becomes the residual.
  virtual std::int64_t encode(const RangeLayout& layout, float* values, const CodingContext& context, std::byte* code) = 0;
  /// sum += weight × the decoded values. Throws DataError if the code cannot belong to this layout; never writes outside `sum`.
  virtual void decode_add(const RangeLayout& layout, std::span<const std::byte> code, float weight, float* sum) const = 0;
  /// How codes of M workers become a mean. dense: each worker decodes the M codes of its slice of the range and encodes their mean;
  /// traffic does not grow with M. sparse: every worker gets all codes.
  enum class Averaging { dense, sparse };
  virtual Averaging averaging() const = 0;
};

/// Numbers to be averaged over the workers, in place.
struct Round {
  enum class Type { f32, f16, bf16 };
  void* data = nullptr;
  std::int64_t count = 0;
  Type type = Type::f32;
};

/// Has the state of one range; each range of a strategy has its own Linear. For GPU memory (linear_on_gpu), all work goes to a stream, a
/// cudaStream_t.
class Linear {
 public:
  virtual ~Linear() = default;
  virtual int rounds() const = 0;
  /// Prepares round `index` (0 …) from `values`, once round index−1 is averaged. The Linear owns the memory.
  virtual Round round(int index, const float* values, void* stream = nullptr) = 0;
  /// After the last round: `mean` becomes the common result, `values` this worker's residual.
  virtual void finish(float* values, float* mean, void* stream = nullptr) = 0;
  /// The state for the next step (PowerSGD's Q): the same on all workers, and part of the checkpoint.
  virtual std::vector<float> state([[maybe_unused]] void* stream = nullptr) const { return {}; }
  /// `state`: as many values as state() has.
  virtual void set_state([[maybe_unused]] std::span<const float> state, [[maybe_unused]] void* stream = nullptr) {}
};

class DeviceCode;

/// A row of the registry has a coder or a linear.
struct Compressor {
  std::unique_ptr<Coder> (*coder)(const CompressConfig&) = nullptr;
  std::unique_ptr<Linear> (*linear)(const CompressConfig&, const RangeLayout&, std::uint64_t seed) = nullptr;
  std::unique_ptr<DeviceCode> (*on_gpu)(const CompressConfig&, const RangeLayout&) = nullptr;  // the coder's kernels (device_code.h)
  std::unique_ptr<Linear> (*linear_on_gpu)(const CompressConfig&, const RangeLayout&, std::uint64_t seed) = nullptr;
  std::optional<Round::Type> rounds_to = {};  // for a linear that only rounds every value
  bool feedback = true;                       // what compress.feedback=auto means
  bool momentum_correction = false;           // dgc: the worker's momentum goes into the residual, and the optimizer has none

  /// Whether it works on GPU memory: with kernels, or with LibTorch's rounding.
  bool has_kernels() const { return on_gpu || linear_on_gpu || rounds_to; }
};
std::span<const Entry<Compressor>> compressors();

}  // namespace paceline::compress
