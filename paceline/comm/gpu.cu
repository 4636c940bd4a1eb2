#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "paceline/base/error.h"
#include "paceline/comm/extreme.h"
#include "paceline/comm/gpu.h"

namespace paceline::comm::gpu {
namespace {

void require(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw Error(std::string("cuda: ") + what + ": " + cudaGetErrorString(result));
}

struct Places {
  const void* in[kMostRanks];
  void* out[kMostRanks];
  int ins, outs;
};

// Halves are added as floats and rounded after each addition, as on the CPU.
template <class T>
struct Wide {
  using Type = T;
};
template <>
struct Wide<__half> {
  using Type = float;
};
template <>
struct Wide<__nv_bfloat16> {
  using Type = float;
};

template <ReduceOp op, class W>
__device__ W combined(W a, W b) {
  if constexpr (op == ReduceOp::sum) {
    return static_cast<W>(a + b);
  } else {
    return extreme<op, W>(a, b);
  }
}

template <ReduceOp op, class T>
__global__ void combine_kernel(Places places, std::int64_t count, int divisor) {
  using W = typename Wide<T>::Type;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    T value = static_cast<const T*>(places.in[0])[i];
    for (int k = 1; k < places.ins; ++k)
      value = static_cast<T>(combined<op>(static_cast<W>(value), static_cast<W>(static_cast<const T*>(places.in[k])[i])));
    if (divisor != 1) value = static_cast<T>(static_cast<W>(value) / static_cast<W>(divisor));
    for (int k = 0; k < places.outs; ++k) static_cast<T*>(places.out[k])[i] = value;
  }
}

template <class T>
void launch(ReduceOp op, const Places& places, std::int64_t count, int divisor, cudaStream_t stream) {
  constexpr int kThreads = 256, kMostBlocks = 1056;
  const int blocks = static_cast<int>(std::min<std::int64_t>((count + kThreads - 1) / kThreads, kMostBlocks));
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean: combine_kernel<ReduceOp::sum, T><<<blocks, kThreads, 0, stream>>>(places, count, divisor); break;
    case ReduceOp::min: combine_kernel<ReduceOp::min, T><<<blocks, kThreads, 0, stream>>>(places, count, divisor); break;
    case ReduceOp::max: combine_kernel<ReduceOp::max, T><<<blocks, kThreads, 0, stream>>>(places, count, divisor); break;
  }
  require(cudaGetLastError(), "reduction");
}

}  // namespace

bool available() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

void synchronize(void* stream) { require(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "waiting for a stream"); }

Mark::Mark() {
  cudaEvent_t event = nullptr;
  require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "event");
  event_ = event;
}
Mark::~Mark() { cudaEventDestroy(static_cast<cudaEvent_t>(event_)); }
void Mark::record(void* stream) {
  require(cudaEventRecord(static_cast<cudaEvent_t>(event_), static_cast<cudaStream_t>(stream)), "marking a place in a stream");
}
void Mark::wait() const { require(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)), "waiting for a place in a stream"); }

void Mark::hold(void* stream) const {
  require(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event_), 0), "waiting in a stream");
}

Queue::Queue() {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  stream_ = stream;
}
Queue::~Queue() { cudaStreamDestroy(static_cast<cudaStream_t>(stream_)); }

OnDeviceOf::OnDeviceOf(const void* data) {
  cudaPointerAttributes memory{};
  int current = 0;
  require(cudaPointerGetAttributes(&memory, data), "asking where memory lies");
  require(cudaGetDevice(&current), "asking for the device");
  if (memory.type != cudaMemoryTypeDevice || memory.device == current) return;
  require(cudaSetDevice(memory.device), "choosing a device");
  before_ = current;
}
OnDeviceOf::~OnDeviceOf() {
  if (before_ >= 0) cudaSetDevice(before_);
}

void copy(void* to, const void* from, std::int64_t bytes, void* stream) {
  require(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, static_cast<cudaStream_t>(stream)), "copy");
}

void combine_all(DType dtype, ReduceOp op, std::span<const void* const> in, std::span<void* const> out, std::int64_t count, int divisor,
                 void* stream) {
  if (count == 0) return;
  ensure(in.size() <= kMostRanks && out.size() <= kMostRanks, "no more ranks share a GPU than a reduction has places for");
  Places places{};
  std::copy(in.begin(), in.end(), places.in);
  std::copy(out.begin(), out.end(), places.out);
  places.ins = static_cast<int>(in.size()), places.outs = static_cast<int>(out.size());
  const auto queue = static_cast<cudaStream_t>(stream);
  switch (dtype) {
    case DType::f32: return launch<float>(op, places, count, divisor, queue);
    case DType::f64: return launch<double>(op, places, count, divisor, queue);
    case DType::f16: return launch<__half>(op, places, count, divisor, queue);
    case DType::bf16: return launch<__nv_bfloat16>(op, places, count, divisor, queue);
    case DType::i8: return launch<std::int8_t>(op, places, count, divisor, queue);
    case DType::u8: return launch<std::uint8_t>(op, places, count, divisor, queue);
    case DType::i32: return launch<std::int32_t>(op, places, count, divisor, queue);
    case DType::i64: return launch<std::int64_t>(op, places, count, divisor, queue);
  }
}

}  // namespace paceline::comm::gpu
