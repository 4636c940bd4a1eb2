// The k-th largest magnitude is found exactly, digit by digit from the top, as kth_largest() of sparse.h does it: count the values that
// have each digit, then choose the digit with the k-th. After that, values are counted by unit, so that every unit knows where its own are
// written. All counts are integers, so the order in which threads add them does not matter.
#include <cstring>
#include <utility>

#include "paceline/compress/device_launch.cuh"
#include "paceline/compress/device_sparse_kernels.h"

namespace paceline::compress::gpu {
namespace {

constexpr int kDigits = SparseMemory::kDigits;
constexpr int kLowDigits = 1 << 10;             // 31 bits of a magnitude are 11, 10 and 10
constexpr std::int64_t kCountingBlocks = 1024;  // each adds kDigits counts at its end
constexpr int kScanThreads = 1024;

/// How often each digit occurs among the values that agree with what is known of `least`.
__global__ void __launch_bounds__(kThreads)
    digits_kernel(Tables tables, const float* values, const Choice* choice, int shift, int digits, std::int64_t* counts) {
  __shared__ unsigned own[kDigits];
  for (int i = static_cast<int>(threadIdx.x); i < digits; i += kThreads) own[i] = 0;
  __syncthreads();
  const std::uint32_t least = choice->least, fixed = choice->fixed;
  for (std::int64_t u = blockIdx.x; u < tables.unit_count; u += gridDim.x) {
    const Unit unit = tables.units[u];
    for (std::int64_t i = threadIdx.x; i < unit.count; i += kThreads) {
      const std::uint32_t size = __float_as_uint(values[unit.at + i]) & kMagnitudeBits;
      if ((size & fixed) == least) atomicAdd(&own[(size >> shift) & static_cast<std::uint32_t>(digits - 1)], 1u);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < digits; i += kThreads)
    if (own[i] != 0) atomicAdd(reinterpret_cast<unsigned long long*>(counts + i), static_cast<unsigned long long>(own[i]));
}

/// One warp: finds the digit of the k-th largest, where k is choice->equal, and clears the counts.
__global__ void digit_kernel(Choice* choice, int shift, int digits, std::int64_t* counts) {
  const int lane = static_cast<int>(threadIdx.x), share = digits / 32;
  std::int64_t* const own = counts + lane * share;
  std::int64_t sum = 0;
  for (int i = 0; i < share; ++i) sum += own[i];
  std::int64_t larger = 0;  // of the lanes above
  for (int other = 0; other < 32; ++other) {
    const std::int64_t theirs = __shfl_sync(0xffffffffu, sum, other);
    if (other > lane) larger += theirs;
  }
  const Choice known = *choice;
  __syncwarp();
  if (larger < known.equal && known.equal <= larger + sum) {
    std::int64_t k = known.equal - larger;
    int digit = share - 1;
    while (own[digit] < k) k -= own[digit--];
    *choice = {known.least | static_cast<std::uint32_t>(lane * share + digit) << shift,
               known.fixed | static_cast<std::uint32_t>(digits - 1) << shift, k};
  }
  for (int i = 0; i < share; ++i) own[i] = 0;
}

__global__ void begin_kernel(Choice choice, Choice* to) { *to = choice; }

__device__ bool is_above(std::uint32_t size, const Choice& choice) { return size > choice.least; }
__device__ bool is_equal(std::uint32_t size, const Choice& choice) { return size == choice.least; }

/// The hits of every unit, in before[unit].
__global__ void __launch_bounds__(kThreads) count_kernel(Tables tables, const float* values, const Choice* present, HitsBefore* before) {
  __shared__ int above_of[kThreads / 32], equal_of[kThreads / 32];
  const Choice choice = *present;
  for (std::int64_t u = blockIdx.x; u < tables.unit_count; u += gridDim.x) {
    const Unit unit = tables.units[u];
    int above = 0, equal = 0;
    for (std::int64_t i = threadIdx.x; i < unit.count; i += kThreads) {
      const std::uint32_t size = __float_as_uint(values[unit.at + i]) & kMagnitudeBits;
      above += is_above(size, choice) ? 1 : 0;
      equal += is_equal(size, choice) ? 1 : 0;
    }
    above = __reduce_add_sync(0xffffffffu, above), equal = __reduce_add_sync(0xffffffffu, equal);
    __syncthreads();  // with the previous unit
    if (threadIdx.x % 32 == 0) above_of[threadIdx.x / 32] = above, equal_of[threadIdx.x / 32] = equal;
    __syncthreads();
    if (threadIdx.x != 0) continue;
    HitsBefore all{0, 0};
    for (int warp = 0; warp < kThreads / 32; ++warp) all.above += above_of[warp], all.equal += equal_of[warp];
    before[u] = all;
  }
}

/// One block: counts of units become counts of all units before, and before[units] the total.
__global__ void __launch_bounds__(kScanThreads) scan_kernel(std::int64_t units, HitsBefore* before) {
  __shared__ HitsBefore sums[kScanThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t share = (units + kScanThreads - 1) / kScanThreads;
  const std::int64_t begin = min(units, thread * share), end = min(units, begin + share);
  HitsBefore own{0, 0};
  for (std::int64_t u = begin; u < end; ++u) own.above += before[u].above, own.equal += before[u].equal;
  sums[thread] = own;
  for (int distance = 1; distance < kScanThreads; distance *= 2) {
    __syncthreads();
    const HitsBefore left = thread >= distance ? sums[thread - distance] : HitsBefore{0, 0};
    __syncthreads();
    sums[thread].above += left.above, sums[thread].equal += left.equal;
  }
  HitsBefore running{sums[thread].above - own.above, sums[thread].equal - own.equal};
  for (std::int64_t u = begin; u < end; ++u) {
    const HitsBefore here = before[u];
    before[u] = running;
    running.above += here.above, running.equal += here.equal;
  }
  if (thread == kScanThreads - 1) before[units] = running;
}

/// Calls send(index in the range, position in the code) for every value that is sent.
template <class Send>
__device__ void for_each_hit(const Tables& tables, const float* values, const Choice& choice, const HitsBefore* before, const Send& send) {
  __shared__ std::uint32_t above_of[kThreads / 32], equal_of[kThreads / 32];  // flags of each warp's values
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::uint32_t lower = (1u << (threadIdx.x % 32)) - 1;  // the lanes before this one
  for (std::int64_t u = blockIdx.x; u < tables.unit_count; u += gridDim.x) {
    const Unit unit = tables.units[u];
    HitsBefore running = before[u];
    for (std::int64_t first = 0; first < unit.count; first += kThreads) {
      const std::int64_t i = first + threadIdx.x;
      const bool there = i < unit.count;
      const std::uint32_t size = there ? __float_as_uint(values[unit.at + i]) & kMagnitudeBits : 0;
      const bool above = there && is_above(size, choice), equal = there && is_equal(size, choice);
      const std::uint32_t all_above = __ballot_sync(0xffffffffu, above), all_equal = __ballot_sync(0xffffffffu, equal);
      __syncthreads();  // with the previous values
      if (threadIdx.x % 32 == 0) above_of[warp] = all_above, equal_of[warp] = all_equal;
      __syncthreads();
      HitsBefore own = running;
      for (int other = 0; other < kThreads / 32; ++other) {
        const int others_above = __popc(above_of[other]), others_equal = __popc(equal_of[other]);
        running.above += others_above, running.equal += others_equal;
        if (other < warp) own.above += others_above, own.equal += others_equal;
      }
      own.above += __popc(all_above & lower), own.equal += __popc(all_equal & lower);
      if (above || (equal && own.equal < choice.equal)) send(unit.at + i, own.above + min(own.equal, choice.equal));
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    send_top_kernel(Tables tables, const Choice* present, const HitsBefore* before, std::int64_t k, float* values, std::uint32_t* code) {
  const Choice choice = *present;
  for_each_hit(tables, values, choice, before, [&](std::int64_t index, std::int64_t position) {
    code[position] = static_cast<std::uint32_t>(index);
    code[k + position] = __float_as_uint(values[index]);
    values[index] = 0;
  });
}

__global__ void __launch_bounds__(kThreads) send_threshold_kernel(Tables tables, const Choice* present, const HitsBefore* before,
                                                                  float threshold, float* values, std::uint32_t* code) {
  const Choice choice = *present;
  for_each_hit(tables, values, choice, before, [&](std::int64_t index, std::int64_t position) {
    const std::uint32_t bits = __float_as_uint(values[index]), sign = bits >> 31;
    code[1 + position] = static_cast<std::uint32_t>(index) * 2 + sign;
    if ((bits & kMagnitudeBits) >= kInfinityBits) code[0] = kNanBits;  // all that write it write the same
    if ((bits & kMagnitudeBits) <= kInfinityBits) values[index] = __fsub_rn(values[index], sign != 0 ? -threshold : threshold);
  });
}

__global__ void head_kernel(float threshold, std::uint32_t* code) { *code = __float_as_uint(threshold); }

__global__ void decode_top_kernel(const std::uint32_t* code, std::int64_t k, float weight, float* sum) {
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < k;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    float& to = sum[code[i]];
    to = __fadd_rn(to, __fmul_rn(weight, __uint_as_float(code[k + i])));
  }
}

__global__ void decode_threshold_kernel(const std::uint32_t* code, std::int64_t count, float weight, float* sum) {
  const float step = __fmul_rn(weight, __uint_as_float(code[0]));
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const std::uint32_t word = code[1 + i];
    float& to = sum[word >> 1];
    to = __fadd_rn(to, (word & 1u) != 0 ? -step : step);
  }
}

void count_hits(const Tables& tables, const SparseMemory& memory, const float* values, cudaStream_t queue) {
  if (tables.unit_count > 0)
    count_kernel<<<blocks_for(tables.unit_count), kThreads, 0, queue>>>(tables, values, memory.choice, memory.before);
  scan_kernel<<<1, kScanThreads, 0, queue>>>(tables.unit_count, memory.before);
}

unsigned blocks_of(std::int64_t values) { return blocks_for((values + kThreads - 1) / kThreads); }

}  // namespace

void encode_top(const Tables& tables, const SparseMemory& memory, std::int64_t k, float* values, std::byte* code, void* stream) {
  const auto queue = static_cast<cudaStream_t>(stream);
  const unsigned counting = blocks_for(tables.unit_count, kCountingBlocks);
  begin_kernel<<<1, 1, 0, queue>>>(Choice{0, 0, k}, memory.choice);
  for (const auto& [shift, digits] : {std::pair(20, kDigits), std::pair(10, kLowDigits), std::pair(0, kLowDigits)}) {
    digits_kernel<<<counting, kThreads, 0, queue>>>(tables, values, memory.choice, shift, digits, memory.counts);
    digit_kernel<<<1, 32, 0, queue>>>(memory.choice, shift, digits, memory.counts);
  }
  count_hits(tables, memory, values, queue);
  send_top_kernel<<<blocks_for(tables.unit_count), kThreads, 0, queue>>>(tables, memory.choice, memory.before, k, values,
                                                                         reinterpret_cast<std::uint32_t*>(code));
  require(cudaGetLastError(), "encoding the largest values");
}

void decode_top(const std::byte* code, std::int64_t k, float weight, float* sum, void* stream) {
  if (k == 0) return;
  decode_top_kernel<<<blocks_of(k), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(reinterpret_cast<const std::uint32_t*>(code), k,
                                                                                      weight, sum);
  require(cudaGetLastError(), "decoding the largest values");
}

std::int64_t encode_threshold(const Tables& tables, const SparseMemory& memory, float threshold, float* values, std::byte* code,
                              void* stream) {
  const auto queue = static_cast<cudaStream_t>(stream);
  auto* const words = reinterpret_cast<std::uint32_t*>(code);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &threshold, sizeof(bits));
  begin_kernel<<<1, 1, 0, queue>>>(Choice{bits, 0, 0}, memory.choice);
  head_kernel<<<1, 1, 0, queue>>>(threshold, words);
  count_hits(tables, memory, values, queue);
  if (tables.unit_count > 0)
    send_threshold_kernel<<<blocks_for(tables.unit_count), kThreads, 0, queue>>>(tables, memory.choice, memory.before, threshold, values,
                                                                                 words);
  require(cudaGetLastError(), "encoding by a threshold");
  HitsBefore total{};
  copy(&total, memory.before + tables.unit_count, sizeof(total), stream);
  wait(stream);
  return total.above;
}

void decode_threshold(const std::byte* code, std::int64_t count, float weight, float* sum, void* stream) {
  if (count == 0) return;
  decode_threshold_kernel<<<blocks_of(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      reinterpret_cast<const std::uint32_t*>(code), count, weight, sum);
  require(cudaGetLastError(), "decoding by a threshold");
}

}  // namespace paceline::compress::gpu
