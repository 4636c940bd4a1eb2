#include "paceline/compress/device_launch.cuh"

namespace paceline::compress::gpu {
namespace {

constexpr float kLeastTop = 1e-30f;  // kNothing of block_coder.h
// Draws::from of draws.h.
__device__ Chance from(Chance chance, std::int64_t begin) {
  chance.start += static_cast<std::uint32_t>(begin) * kWeyl;
  chance.key ^= static_cast<std::uint32_t>(static_cast<std::uint64_t>(begin) >> 32) * 0x85ebca6bu;
  return chance;
}

/// Draw i of Draws::for_each.
__device__ std::uint32_t draw(Chance chance, std::int64_t i) {
  const std::uint32_t drawn = word(chance, static_cast<std::uint32_t>(i / 64 * 32 + i % 32));
  return i % 64 < 32 ? drawn & 0xffffu : drawn >> 16;
}

// Codes begin at any byte.
__device__ void put(std::byte* to, float value) {
  const std::uint32_t bits = __float_as_uint(value);
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(bits >> (8 * i) & 0xffu);
}

__device__ float get(const std::byte* from) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(from[i]) << (8 * i);
  return __uint_as_float(bits);
}

/// The maximum over all threads; every thread gets it.
__device__ std::uint32_t largest_of_block(std::uint32_t value) {
  __shared__ std::uint32_t by_warp[kThreads / 32];
  value = __reduce_max_sync(0xffffffffu, value);
  __syncthreads();  // with the previous unit
  if (threadIdx.x % 32 == 0) by_warp[threadIdx.x / 32] = value;
  __syncthreads();
  for (int warp = 0; warp < kThreads / 32; ++warp) value = max(value, by_warp[warp]);
  return value;
}

template <bool dynamic>
__global__ void encode_blocks_kernel(Tables tables, Levels levels, Chance chance, float* values, std::byte* code) {
  const float most = dynamic ? 1.0f : 127.0f;
  for (std::int64_t u = blockIdx.x; u < tables.unit_count; u += gridDim.x) {
    const Unit unit = tables.units[u];
    float* const own = values + unit.at;
    std::byte* const bytes = code + unit.code + sizeof(float);
    std::uint32_t largest = 0;
    for (std::int64_t i = threadIdx.x; i < unit.count; i += kThreads) largest = max(largest, __float_as_uint(own[i]) & kMagnitudeBits);
    largest = largest_of_block(largest);
    const float top = __uint_as_float(largest), scale = __fdiv_rn(top, most), inverse = __fdiv_rn(most, top);
    const bool finite = largest < kInfinityBits, says = finite && top >= kLeastTop;
    if (threadIdx.x == 0) put(bytes - sizeof(float), says ? scale : finite ? 0.0f : __uint_as_float(kNanBits));
    const std::int64_t offset = tables.parts[unit.part].offset;
    const Chance own_chance = from(from(chance, offset), unit.at - offset);
    for (std::int64_t i = threadIdx.x; i < unit.count; i += kThreads) {
      if (!says) {
        bytes[i] = std::byte{0};
      } else if constexpr (dynamic) {
        const std::uint32_t bits = __float_as_uint(__fmul_rn(own[i], inverse));
        const std::uint32_t key =
            min(max((bits & kMagnitudeBits) >> levels.dropped, levels.first), levels.first + levels.keys - 1) - levels.first;
        const std::uint8_t found = levels.codes[key + (bits >> 31) * levels.keys];
        bytes[i] = static_cast<std::byte>(found);
        own[i] = __fsub_rn(own[i], __fmul_rn(levels.levels[found], scale));
      } else {
        const std::int32_t moved =
            static_cast<std::int32_t>(__fmul_rn(own[i], __fmul_rn(inverse, 0x1p16f))) + static_cast<std::int32_t>(draw(own_chance, i));
        const std::int32_t q = min(moved >> 16, 127);
        bytes[i] = static_cast<std::byte>(q & 0xff);
        own[i] = __fsub_rn(own[i], __fmul_rn(static_cast<float>(q), scale));
      }
    }
  }
}

template <bool dynamic>
__global__ void decode_blocks_kernel(Tables tables, Levels levels, const std::byte* code, float weight, float* sum) {
  for (std::int64_t u = blockIdx.x; u < tables.unit_count; u += gridDim.x) {
    const Unit unit = tables.units[u];
    const std::byte* const bytes = code + unit.code + sizeof(float);
    const float factor = __fmul_rn(weight, get(bytes - sizeof(float)));
    for (std::int64_t i = threadIdx.x; i < unit.count; i += kThreads) {
      const auto byte = static_cast<std::uint8_t>(bytes[i]);
      const float level = dynamic ? levels.levels[byte] : static_cast<float>(static_cast<std::int8_t>(byte));
      sum[unit.at + i] = __fadd_rn(sum[unit.at + i], __fmul_rn(factor, level));
    }
  }
}

/// Eight threads per unit, one per lane of tensor_statistics.cpp: four even ones, which also handle the rest, and four odd ones.
__global__ void collect_kernel(Tables tables, const float* values, UnitSums* sums) {
  constexpr int kLanes = 8, kUnits = kThreads / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kUnits; first < tables.unit_count;
       first += static_cast<std::int64_t>(gridDim.x) * kUnits) {
    const std::int64_t u = first + threadIdx.x / kLanes;
    const bool there = u < tables.unit_count;  // all threads of a warp meet in the shuffles
    const Unit unit = there ? tables.units[u] : Unit{};
    const float* const own = values + unit.at;
    float positive = 0, negative = 0, squares = 0;
    std::int32_t negatives = 0;
    std::uint32_t largest = 0;
    const auto add = [&](float value) {
      const std::uint32_t bits = __float_as_uint(value);
      const bool has_sign = bits >> 31 != 0;
      negative = __fadd_rn(negative, has_sign ? value : 0.0f);
      positive = __fadd_rn(positive, has_sign ? 0.0f : value);
      squares = __fadd_rn(squares, __fmul_rn(value, value));
      negatives += has_sign ? 1 : 0;
      largest = max(largest, bits & kMagnitudeBits);
    };
    const std::int64_t whole = unit.count / kLanes * kLanes;
    for (std::int64_t i = lane; i < whole; i += kLanes) add(own[i]);
    for (std::int64_t i = whole + lane; lane < kLanes / 2 && i < unit.count; i += kLanes / 2) add(own[i]);
    const int base = lane / 4 * 4;
    double totals[3] = {0, 0, 0};
    std::int32_t all_negatives = 0;
    std::uint32_t all_largest = 0;
    for (int k = 0; k < 4; ++k) {
      totals[0] += static_cast<double>(__shfl_sync(0xffffffffu, positive, base + k, kLanes));
      totals[1] += static_cast<double>(__shfl_sync(0xffffffffu, negative, base + k, kLanes));
      totals[2] += static_cast<double>(__shfl_sync(0xffffffffu, squares, base + k, kLanes));
    }
    for (int k = 0; k < kLanes; ++k) {
      all_negatives += __shfl_sync(0xffffffffu, negatives, k, kLanes);
      all_largest = max(all_largest, __shfl_sync(0xffffffffu, largest, k, kLanes));
    }
    if (!there || lane % 4 != 0) continue;
    UnitSums& to = sums[u];
    to.positive[lane / 4] = totals[0], to.negative[lane / 4] = totals[1], to.squares[lane / 4] = totals[2];
    if (lane == 0) to.negatives = all_negatives, to.largest = all_largest;
  }
}

struct PartSums {
  double positive, negative, squares;
  std::int64_t negatives;
  std::uint32_t largest;
};

__device__ PartWorth worth_of(const FlagSettings& settings, const PartSums& known, std::int64_t n) {
  const float nan = __uint_as_float(kNanBits);
  if (known.largest >= kInfinityBits) return {nan, nan, 0};
  const double count = static_cast<double>(n);
  if (settings.kind == Flags::onebit) {
    const auto mean = [](double sum, std::int64_t of) { return of == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(of)); };
    return {mean(known.positive, n - known.negatives), mean(known.negative, known.negatives), 1};
  }
  if (settings.kind == Flags::sign) {
    const double magnitude = __ddiv_rn(__dsub_rn(known.positive, known.negative), count);
    const auto scale = static_cast<float>(settings.sign_scale > 0 ? settings.sign_scale : magnitude);
    return {scale, -scale, 1};
  }
  const double mean = __ddiv_rn(__dadd_rn(known.positive, known.negative), count);
  const double deviation = sqrt(fmax(fma(-mean, mean, __ddiv_rn(known.squares, count)), 0.0));
  const double clip = __dmul_rn(settings.clip_deviations, deviation), largest = static_cast<double>(__uint_as_float(known.largest));
  const auto scale = static_cast<float>(clip > 0 ? fmin(largest, clip) : largest);
  const bool says = !isinf(__fdiv_rn(0x1p16f, scale));
  return {says ? scale : 0.0f, 0.0f, says ? 1 : 0};
}

/// One block per part: the units' sums are added in order, each kind by one thread, and the values of the flags are written.
__global__ void worth_kernel(Tables tables, FlagSettings settings, const UnitSums* sums, PartWorth* worths, std::byte* code) {
  __shared__ UnitSums some[kThreads];
  __shared__ PartSums known;
  for (std::int64_t p = blockIdx.x; p < tables.part_count; p += gridDim.x) {
    const PartOnGpu part = tables.parts[p];
    if (threadIdx.x == 0) known = {};
    for (std::int64_t first = 0; first < part.units; first += kThreads) {
      const int here = static_cast<int>(min(static_cast<std::int64_t>(kThreads), part.units - first));
      __syncthreads();
      if (static_cast<int>(threadIdx.x) < here) some[threadIdx.x] = sums[part.first_unit + first + threadIdx.x];
      __syncthreads();
      const auto add = [&](double& sum, double(UnitSums::*which)[2]) {
        double running = sum;
        for (int i = 0; i < here; ++i) running += (some[i].*which)[0], running += (some[i].*which)[1];
        sum = running;
      };
      if (threadIdx.x == 0) add(known.positive, &UnitSums::positive);
      if (threadIdx.x == 32) add(known.negative, &UnitSums::negative);
      if (threadIdx.x == 64) add(known.squares, &UnitSums::squares);
      if (threadIdx.x == 96)
        for (int i = 0; i < here; ++i) known.negatives += some[i].negatives, known.largest = max(known.largest, some[i].largest);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      const PartWorth worth = worth_of(settings, known, part.count);
      worths[p] = worth;
      put(code + part.code, worth.positive);
      if (settings.kind == Flags::onebit) put(code + part.code + sizeof(float), worth.negative);
    }
    __syncthreads();
  }
}

__device__ std::int64_t head_of(Flags kind) { return (kind == Flags::onebit ? 2 : 1) * static_cast<std::int64_t>(sizeof(float)); }

/// A warp has 32 consecutive values, whose flags are four bytes.
__device__ void put_flags(std::byte* to, std::uint32_t flags, std::int64_t count) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < 4 && 8 * lane < count) to[lane] = static_cast<std::byte>(flags >> (8 * lane) & 0xffu);
}

template <Flags kind>
__global__ void encode_flags_kernel(Tables tables, Chance chance, const PartWorth* worths, float* values, std::byte* code) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t u = blockIdx.x; u < tables.unit_count; u += gridDim.x) {
    const Unit unit = tables.units[u];
    const PartOnGpu part = tables.parts[unit.part];
    const PartWorth worth = worths[unit.part];
    const Chance own = from(chance, part.offset);
    for (std::int64_t first = static_cast<std::int64_t>(threadIdx.x) / 32 * 32; first < unit.count; first += kThreads) {
      const std::int64_t index = unit.at - part.offset + first + lane;  // in the part
      const bool there = first + lane < unit.count;
      float* const value = values + part.offset + index;
      const std::uint32_t bits = there ? __float_as_uint(*value) : 0;
      std::byte* const flags = code + part.code + head_of(kind) + (index - lane) / 8;
      if constexpr (kind == Flags::ternary) {
        const std::int64_t tile = index / 64 * 64;
        const std::uint32_t drawn = draw(from(own, tile), index - tile);
        const float odds = __fmul_rn(__uint_as_float(bits & kMagnitudeBits), __fdiv_rn(0x1p16f, worth.positive));
        const bool hit = there && worth.plain != 0 && static_cast<float>(static_cast<std::int32_t>(drawn)) + 0.5f < odds;
        if (there && worth.plain != 0)
          *value = __fsub_rn(*value, __uint_as_float((hit ? __float_as_uint(worth.positive) : 0u) | (bits & kSignBit)));
        put_flags(flags, __ballot_sync(0xffffffffu, hit), unit.count - first);
        put_flags(flags + (part.count + 7) / 8, __ballot_sync(0xffffffffu, hit && bits >> 31 != 0), unit.count - first);
      } else {
        bool negative = bits >> 31 != 0;
        if (kind == Flags::sign && (bits & kMagnitudeBits) == 0)
          negative = (word(own, static_cast<std::uint32_t>(index / 32)) >> lane & 1u) != 0;
        if (there && worth.plain != 0) *value = __fsub_rn(*value, negative ? worth.negative : worth.positive);
        put_flags(flags, __ballot_sync(0xffffffffu, there && worth.plain != 0 && negative), unit.count - first);
      }
    }
  }
}

template <Flags kind>
__global__ void decode_flags_kernel(Tables tables, const std::byte* code, float weight, float* sum) {
  for (std::int64_t u = blockIdx.x; u < tables.unit_count; u += gridDim.x) {
    const Unit unit = tables.units[u];
    const PartOnGpu part = tables.parts[unit.part];
    const std::byte* const head = code + part.code;
    const std::byte* const flags = head + head_of(kind);
    const float scale = get(head), positive = __fmul_rn(weight, scale);
    const float negative = kind == Flags::onebit ? __fmul_rn(weight, get(head + sizeof(float))) : __fmul_rn(weight, -scale);
    for (std::int64_t i = threadIdx.x; i < unit.count; i += kThreads) {
      const std::int64_t index = unit.at - part.offset + i;
      const auto flag = [index](const std::byte* bytes) { return (static_cast<std::uint32_t>(bytes[index / 8]) >> (index % 8) & 1u) != 0; };
      float& to = sum[unit.at + i];
      if constexpr (kind == Flags::ternary) {
        const float level = flag(flags) ? (flag(flags + (part.count + 7) / 8) ? -1.0f : 1.0f) : 0.0f;
        to = __fadd_rn(to, __fmul_rn(positive, level));
      } else {
        to = __fadd_rn(to, flag(flags) ? negative : positive);
      }
    }
  }
}

}  // namespace

std::shared_ptr<void> allocate(std::size_t bytes, const void* from) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)) != cudaSuccess) {
    cudaGetLastError();
    throw ConfigError("the GPU has no " + std::to_string(bytes) + " bytes left for comm.compression; lower data.batch");
  }
  std::shared_ptr<void> owned(memory, [](void* own) { cudaFree(own); });
  if (from && bytes > 0) {
    copy(memory, from, bytes, nullptr);
    wait(nullptr);
  }
  return owned;
}

void copy(void* to, const void* from, std::size_t bytes, void* stream) {
  if (bytes == 0) return;
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)), "copying");
}

void wait(void* stream) { require(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "waiting"); }

void encode_blocks(const Tables& tables, const Levels& levels, Chance chance, float* values, std::byte* code, void* stream) {
  if (tables.unit_count == 0) return;
  const auto kernel = levels.levels ? encode_blocks_kernel<true> : encode_blocks_kernel<false>;
  kernel<<<blocks_for(tables.unit_count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tables, levels, chance, values, code);
  require(cudaGetLastError(), "encoding blocks");
}

void decode_blocks(const Tables& tables, const Levels& levels, const std::byte* code, float weight, float* sum, void* stream) {
  if (tables.unit_count == 0) return;
  const auto kernel = levels.levels ? decode_blocks_kernel<true> : decode_blocks_kernel<false>;
  kernel<<<blocks_for(tables.unit_count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tables, levels, code, weight, sum);
  require(cudaGetLastError(), "decoding blocks");
}

void encode_flags(const Tables& tables, const FlagSettings& settings, Chance chance, float* values, std::byte* code, UnitSums* sums,
                  PartWorth* worths, void* stream) {
  if (tables.unit_count == 0) return;
  const auto queue = static_cast<cudaStream_t>(stream);
  collect_kernel<<<blocks_for((tables.unit_count + 31) / 32), kThreads, 0, queue>>>(tables, values, sums);
  worth_kernel<<<blocks_for(tables.part_count), kThreads, 0, queue>>>(tables, settings, sums, worths, code);
  const auto kernel = settings.kind == Flags::onebit ? encode_flags_kernel<Flags::onebit>
                      : settings.kind == Flags::sign ? encode_flags_kernel<Flags::sign>
                                                     : encode_flags_kernel<Flags::ternary>;
  kernel<<<blocks_for(tables.unit_count), kThreads, 0, queue>>>(tables, chance, worths, values, code);
  require(cudaGetLastError(), "encoding flags");
}

void decode_flags(const Tables& tables, Flags kind, const std::byte* code, float weight, float* sum, void* stream) {
  if (tables.unit_count == 0) return;
  const auto kernel = kind == Flags::onebit ? decode_flags_kernel<Flags::onebit>
                      : kind == Flags::sign ? decode_flags_kernel<Flags::sign>
                                            : decode_flags_kernel<Flags::ternary>;
  kernel<<<blocks_for(tables.unit_count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(tables, code, weight, sum);
  require(cudaGetLastError(), "decoding flags");
}

}  // namespace paceline::compress::gpu
