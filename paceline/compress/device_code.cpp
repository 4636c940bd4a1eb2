#include "paceline/compress/device_code.h"

#if PACELINE_WITH_CUDA

#include "paceline/compress/bits.h"
#include "paceline/compress/device_tables.h"
#include "paceline/compress/draws.h"
#include "paceline/compress/dynamic8_table.h"
#include "paceline/compress/tensor_statistics.h"

namespace paceline::compress {
namespace {

gpu::Chance chance_of(const CodingContext& context) {
  const Draws draws(context);
  return {draws.start(), draws.key()};
}

class BlocksOnGpu final : public DeviceCode {
 public:
  BlocksOnGpu(const CompressConfig& config, const RangeLayout& layout, bool dynamic)
      : tables_(layout, config.block, sizeof(float), [&](std::int64_t count) {
          return (count + config.block - 1) / config.block * static_cast<std::int64_t>(sizeof(float)) + count;
        }) {
    if (!dynamic) return;
    using namespace dynamic8_table;
    levels_memory_ = gpu::allocate(sizeof(kLevels), kLevels.data());
    codes_memory_ = gpu::allocate(sizeof(kCodes), kCodes.data());
    levels_ = {.levels = static_cast<const float*>(levels_memory_.get()),
               .codes = static_cast<const std::uint8_t*>(codes_memory_.get()),
               .first = kFirst,
               .keys = kKeys,
               .dropped = kDropped};
  }

  std::int64_t encode(float* values, const CodingContext& context, std::byte* code, void* stream) override {
    gpu::encode_blocks(tables_.tables(), levels_, chance_of(context), values, code, stream);
    return tables_.code_bytes();
  }
  void decode_add(std::span<const std::byte> code, float weight, float* sum, void* stream) const override {
    gpu::decode_blocks(tables_.tables(), levels_, code.data(), weight, sum, stream);
  }

 private:
  TablesOnGpu tables_;
  std::shared_ptr<void> levels_memory_, codes_memory_;
  gpu::Levels levels_;
};

class FlagsOnGpu final : public DeviceCode {
 public:
  FlagsOnGpu(const CompressConfig& config, const RangeLayout& layout, gpu::Flags kind)
      : tables_(layout, kStatisticsBlock, 0, [kind](std::int64_t count) { return head_of(kind) + flags_of(kind) * bytes_of_flags(count); }),
        settings_{kind, config.sign_scale, config.clip_deviations},
        sums_(gpu::allocate(static_cast<std::size_t>(tables_.tables().unit_count) * sizeof(gpu::UnitSums))),
        worths_(gpu::allocate(static_cast<std::size_t>(tables_.tables().part_count) * sizeof(gpu::PartWorth))) {}

  std::int64_t encode(float* values, const CodingContext& context, std::byte* code, void* stream) override {
    gpu::encode_flags(tables_.tables(), settings_, chance_of(context), values, code, static_cast<gpu::UnitSums*>(sums_.get()),
                      static_cast<gpu::PartWorth*>(worths_.get()), stream);
    return tables_.code_bytes();
  }
  void decode_add(std::span<const std::byte> code, float weight, float* sum, void* stream) const override {
    gpu::decode_flags(tables_.tables(), settings_.kind, code.data(), weight, sum, stream);
  }

 private:
  static std::int64_t head_of(gpu::Flags kind) { return (kind == gpu::Flags::onebit ? 2 : 1) * static_cast<std::int64_t>(sizeof(float)); }
  static std::int64_t flags_of(gpu::Flags kind) { return kind == gpu::Flags::ternary ? 2 : 1; }

  TablesOnGpu tables_;
  gpu::FlagSettings settings_;
  std::shared_ptr<void> sums_, worths_;
};

}  // namespace

std::unique_ptr<DeviceCode> int8_on_gpu(const CompressConfig& config, const RangeLayout& layout) {
  return std::make_unique<BlocksOnGpu>(config, layout, /*dynamic=*/false);
}
std::unique_ptr<DeviceCode> dynamic8_on_gpu(const CompressConfig& config, const RangeLayout& layout) {
  return std::make_unique<BlocksOnGpu>(config, layout, /*dynamic=*/true);
}
std::unique_ptr<DeviceCode> onebit_on_gpu(const CompressConfig& config, const RangeLayout& layout) {
  return std::make_unique<FlagsOnGpu>(config, layout, gpu::Flags::onebit);
}
std::unique_ptr<DeviceCode> sign_on_gpu(const CompressConfig& config, const RangeLayout& layout) {
  return std::make_unique<FlagsOnGpu>(config, layout, gpu::Flags::sign);
}
std::unique_ptr<DeviceCode> ternary_on_gpu(const CompressConfig& config, const RangeLayout& layout) {
  return std::make_unique<FlagsOnGpu>(config, layout, gpu::Flags::ternary);
}

}  // namespace paceline::compress

#endif
