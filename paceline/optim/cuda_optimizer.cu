#include "paceline/optim/cuda_optimizer.h"

#include <algorithm>
#include <string>

#include "paceline/base/error.h"
#include "paceline/optim/cuda_kernels.cuh"
#include "paceline/optim/rules/adagrad.h"
#include "paceline/optim/rules/adam.h"
#include "paceline/optim/rules/lamb.h"
#include "paceline/optim/rules/lars.h"
#include "paceline/optim/rules/rmsprop.h"
#include "paceline/optim/rules/sgd.h"

namespace paceline::optim {
namespace {

void check(cudaError_t status, const char* operation) {
  if (status != cudaSuccess) throw Error(std::string("CUDA: ") + operation + " failed: " + cudaGetErrorString(status));
}

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

bool capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(as_stream(stream), &status), "asking whether a stream is being captured");
  return status != cudaStreamCaptureStatusNone;
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) {
    if (n > 0) check(cudaMalloc(&data_, n * sizeof(T)), "allocating the optimizer's tables");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    check(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "copying the optimizer's tables");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

/// The tensors of the arena, or this rank's pieces of them, and their chunks, ascending.
struct Table {
  explicit Table(std::span<const Segment> segments) {
    for (const Segment& segment : segments) {
      ensure(starts.empty() || segment.offset >= starts.back(), "the segments of an arena ascend");
      starts.push_back(segment.offset);
      const auto tensor = static_cast<std::int32_t>(tensors.size()), first = static_cast<std::int32_t>(chunks.size());
      for (std::int64_t at = 0; at < segment.count; at += kernels::kChunk)
        chunks.push_back({.offset = segment.offset + at,
                          .count = static_cast<std::int32_t>(std::min<std::int64_t>(kernels::kChunk, segment.count - at)),
                          .tensor = tensor,
                          .decay = segment.decay});
      tensors.push_back({.first_chunk = first,
                         .chunks = static_cast<std::int32_t>(chunks.size()) - first,
                         .decay = segment.decay,
                         .whole = segment.tensor});
      counts.push_back(segment.count);
    }
  }

  std::vector<std::int64_t> starts, counts;
  std::vector<kernels::Tensor> tensors;
  std::vector<kernels::Chunk> chunks;
};

/// A run of tensors and of their chunks.
struct Run {
  std::int64_t first_tensor = 0, first_chunk = 0;
  unsigned tensors = 0, chunks = 0;
};

template <class Rule>
class RuleOptimizer final : public CudaOptimizer {
 public:
  RuleOptimizer(const OptimConfig& config, std::span<const Segment> segments)
      : config_(config),
        table_(segments),
        tensors_(table_.tensors),
        chunks_(table_.chunks),
        given_(1),
        clipped_(1),
        trust_(Rule::kNorms == Norms::none ? 0 : table_.tensors.size()),
        sums_(2 * table_.chunks.size()) {}

  std::vector<std::string> state_names() const override { return {Rule::kStateNames.begin(), Rule::kStateNames.begin() + Rule::kStates}; }
  bool elementwise() const override { return Rule::kNorms == Norms::none; }

  void set_hyper(const Hyper& hyper, void* stream) override {
    kernels::set_step<<<1, 1, 0, as_stream(stream)>>>(make_step(config_, hyper), given_.data());
    launched();
  }

  void squared_norm(const float* gradients, std::span<const Segment> segments, double* result, void* stream) override {
    require_aligned(gradients);
    const Run run = find_run(segments);
    double* sums = sums_.data() + run.first_chunk;
    if (run.chunks > 0)
      kernels::sum_squares<<<run.chunks, kernels::kThreads, 0, as_stream(stream)>>>(chunks_.data() + run.first_chunk, gradients, sums);
    kernels::total<<<1, kernels::kThreads, 0, as_stream(stream)>>>(sums, run.chunks, result);
    launched();
  }

  void update(const Buffers& buffers, std::span<const Segment> segments, const Hyper& hyper, bool zero_gradients) override {
    const Run run = find_run(segments);
    const Step* step = prepare(buffers, hyper);
    if (run.chunks == 0) return;
    if (zero_gradients) update_run<true>(buffers, run, step);
    else update_run<false>(buffers, run, step);
    launched();
  }

  void measure(const Buffers& buffers, std::span<const Segment> pieces, const Hyper& hyper, Squares* squares) override {
    const Run run = find_run(pieces);
    const Step* step = prepare(buffers, hyper);
    if (run.chunks == 0) return;
    sum_squares<false>(buffers, run, step);
    kernels::add_squares<<<run.tensors, kernels::kThreads, 0, as_stream(buffers.stream)>>>(tensors_.data() + run.first_tensor, sums(),
                                                                                           squares);
    launched();
  }

  void move(const Buffers& buffers, std::span<const Segment> pieces, const Hyper& hyper, const Squares* squares) override {
    const Run run = find_run(pieces);
    const Step* step = prepare(buffers, hyper);
    if (run.chunks == 0) return;
    if constexpr (Rule::kNorms != Norms::none)
      kernels::adapt_piece<Rule><<<run.tensors, 1, 0, as_stream(buffers.stream)>>>(tensors_.data() + run.first_tensor, step, squares,
                                                                                   trust_.data() + run.first_tensor);
    move_run<false>(buffers, run, step);
    launched();
  }

 private:
  /// Checks the buffers, and enqueues what changes from step to step. Returns where the kernels read it.
  const Step* prepare(const Buffers& buffers, const Hyper& hyper) {
    ensure(buffers.state.size() == Rule::kStates, "an optimizer gets the state that its state_names() asks for");
    require_aligned(buffers.parameters);
    require_aligned(buffers.gradients);
    for (const float* state : buffers.state) require_aligned(state);
    if (!capturing(buffers.stream)) set_hyper(hyper, buffers.stream);
    if (!buffers.squared_norm) return given_.data();
    kernels::clip<<<1, 1, 0, as_stream(buffers.stream)>>>(given_.data(), buffers.squared_norm, config_.clip_norm, clipped_.data());
    return clipped_.data();
  }

  template <bool zero_gradients>
  void update_run(const Buffers& buffers, const Run& run, const Step* step) {
    if constexpr (Rule::kNorms != Norms::none) {
      sum_squares<zero_gradients>(buffers, run, step);
      kernels::adapt<Rule><<<run.tensors, kernels::kThreads, 0, as_stream(buffers.stream)>>>(tensors_.data() + run.first_tensor, step,
                                                                                             sums(), trust_.data() + run.first_tensor);
    }
    move_run<zero_gradients>(buffers, run, step);
  }

  /// Of each chunk; LAMB updates its moments with it.
  template <bool zero_gradients>
  void sum_squares(const Buffers& buffers, const Run& run, const Step* step) {
    const kernels::Arrays arrays = arrays_of(buffers);
    const kernels::Chunk* chunks = chunks_.data() + run.first_chunk;
    const cudaStream_t stream = as_stream(buffers.stream);
    // They are stored at the chunks' indices, so that runs on different streams do not interfere.
    const kernels::ChunkSums here{sums().weights + run.first_chunk, sums().others + run.first_chunk};
    if constexpr (Rule::kNorms == Norms::gradient) {
      kernels::sum_squares<<<run.chunks, kernels::kThreads, 0, stream>>>(chunks, arrays.weights, here.weights);
      kernels::sum_squares<<<run.chunks, kernels::kThreads, 0, stream>>>(chunks, arrays.gradients, here.others);
    } else if constexpr (Rule::kNorms == Norms::direction) {
      kernels::accumulate<Rule, zero_gradients><<<run.chunks, kernels::kThreads, 0, stream>>>(chunks, step, arrays, here);
    } else {
      throw InternalError("an optimizer that updates every element by itself measures nothing");
    }
  }

  /// The parameters, and all state that sum_squares() has not updated.
  template <bool zero_gradients>
  void move_run(const Buffers& buffers, const Run& run, const Step* step) {
    const kernels::Arrays arrays = arrays_of(buffers);
    const kernels::Chunk* chunks = chunks_.data() + run.first_chunk;
    const cudaStream_t stream = as_stream(buffers.stream);
    if constexpr (Rule::kNorms == Norms::direction)
      kernels::move<Rule><<<run.chunks, kernels::kThreads, 0, stream>>>(chunks, step, trust_.data(), arrays);
    else kernels::apply<Rule, zero_gradients><<<run.chunks, kernels::kThreads, 0, stream>>>(chunks, step, trust_.data(), arrays);
  }

  static kernels::Arrays arrays_of(const Buffers& buffers) {
    const auto state = [&](int which) { return which < Rule::kStates ? buffers.state[which] : nullptr; };
    return {buffers.parameters, buffers.gradients, state(0), state(1)};
  }
  kernels::ChunkSums sums() const { return {sums_.data(), sums_.data() + table_.chunks.size()}; }

  /// The position of `segments` among the arena's tensors.
  Run find_run(std::span<const Segment> segments) const {
    if (segments.empty()) return {};
    const auto tensor = std::lower_bound(table_.starts.begin(), table_.starts.end(), segments.front().offset) - table_.starts.begin();
    for (std::size_t i = 0; i < segments.size(); ++i)
      ensure(tensor + i < table_.starts.size() && table_.starts[tensor + i] == segments[i].offset &&
                 table_.counts[tensor + i] == segments[i].count,
             "a CUDA optimizer updates runs of the tensors that it was made for");
    const kernels::Tensor &first = table_.tensors[tensor], &last = table_.tensors[tensor + segments.size() - 1];
    return {tensor, first.first_chunk, static_cast<unsigned>(segments.size()),
            static_cast<unsigned>(last.first_chunk + last.chunks - first.first_chunk)};
  }

  static void require_aligned(const float* pointer) {
    ensure(reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0, "the flat buffers of a CUDA optimizer start at a multiple of 16 bytes");
  }

  static void launched() { check(cudaGetLastError(), "launching an update"); }

  OptimConfig config_;
  Table table_;
  DeviceArray<kernels::Tensor> tensors_;
  DeviceArray<kernels::Chunk> chunks_;
  DeviceArray<Step> given_, clipped_;
  DeviceArray<float> trust_;  // of each tensor
  DeviceArray<double> sums_;  // of each chunk: squared parameters, then squared gradients or directions
};

using MakeCudaOptimizer = std::unique_ptr<CudaOptimizer> (*)(const OptimConfig&, std::span<const Segment>);

template <class Family>
std::unique_ptr<CudaOptimizer> make(const OptimConfig& config, std::span<const Segment> segments) {
  return Family::choose(config, [&](auto rule) -> std::unique_ptr<CudaOptimizer> {
    return std::make_unique<RuleOptimizer<decltype(rule)>>(config, segments);
  });
}

constexpr Entry<MakeCudaOptimizer> kOptimizers[] = {
    // the help texts are in registry.cpp
    {"sgd", "", make<WithMomentum<Sgd>>},         {"adam", "", make<Adam<Decay::in_gradient>>},
    {"adamw", "", make<Adam<Decay::decoupled>>},  {"adagrad", "", make<Adagrad>},
    {"rmsprop", "", make<WithMomentum<Rmsprop>>}, {"rmsprop_warmup", "", make<RmspropWarmup>},
    {"lars", "", make<WithMomentum<Lars>>},       {"lamb", "", make<Lamb>},
};

}  // namespace

std::unique_ptr<CudaOptimizer> make_cuda_optimizer(const OptimConfig& config, std::span<const Segment> segments) {
  const auto& row = find(std::span<const Entry<MakeCudaOptimizer>>(kOptimizers), "optimizer", config.name);
  validate(config);
  return row.make(config, segments);
}

void cast_bf16(const float* input, std::uint16_t* output, std::int64_t n, void* stream) {
  if (n == 0) return;
  ensure(reinterpret_cast<std::uintptr_t>(input) % 8 == 0 && reinterpret_cast<std::uintptr_t>(output) % 4 == 0,
         "a cast to bfloat16 starts at an even element");
  constexpr std::int64_t kBlocks = 2048;  // enough to fill a GPU
  const auto blocks = static_cast<unsigned>(std::min(kBlocks, (n + 2 * kernels::kThreads - 1) / (2 * kernels::kThreads)));
  kernels::cast<<<blocks, kernels::kThreads, 0, as_stream(stream)>>>(input, reinterpret_cast<__nv_bfloat16*>(output), n);
  check(cudaGetLastError(), "launching a cast to bfloat16");
}

}  // namespace paceline::optim
