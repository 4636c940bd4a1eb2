#include "paceline/compress/device_code.h"

#if PACELINE_WITH_CUDA

#include <algorithm>
#include <vector>

#include "paceline/compress/bits.h"
#include "paceline/compress/device_kernels.h"
#include "paceline/compress/draws.h"
#include "paceline/compress/dynamic8_table.h"
#include "paceline/compress/tensor_statistics.h"

namespace paceline::compress {
namespace {

/// Cuts a layout's parts into units of `unit` values. bytes_of(n) is the code size of a part of n values, `head` the size of the scale in
/// front of every unit's bytes; head 0: units have no code of their own.
class TablesOnGpu {
 public:
  template <class Bytes>
  TablesOnGpu(const RangeLayout& layout, std::int64_t unit, std::int64_t head, const Bytes& bytes_of) {
    std::vector<gpu::Unit> units;
    std::vector<gpu::PartOnGpu> parts;
    std::int64_t code = 0;
    for (const Part& part : layout.parts) {
      parts.push_back({.offset = part.offset, .count = part.count, .code = code, .first_unit = std::ssize(units), .units = 0});
      std::int64_t at = code;
      for (std::int64_t begin = 0; begin < part.count; begin += unit) {
        const std::int64_t count = std::min(unit, part.count - begin);
        units.push_back({.at = part.offset + begin, .count = count, .code = at, .part = std::ssize(parts) - 1});
        at += head + count;
      }
      parts.back().units = std::ssize(units) - parts.back().first_unit;
      code += bytes_of(part.count);
    }
    units_ = gpu::allocate(units.size() * sizeof(gpu::Unit), units.data());
    parts_ = gpu::allocate(parts.size() * sizeof(gpu::PartOnGpu), parts.data());
    tables_ = {.units = static_cast<const gpu::Unit*>(units_.get()),
               .parts = static_cast<const gpu::PartOnGpu*>(parts_.get()),
               .unit_count = std::ssize(units),
               .part_count = std::ssize(parts)};
  }

  const gpu::Tables& tables() const { return tables_; }

 private:
  std::shared_ptr<void> units_, parts_;
  gpu::Tables tables_;
};

gpu::Chance chance_of(const Moment& moment) {
  const Draws draws(moment);
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

  void encode(float* values, const Moment& moment, std::byte* code, void* stream) override {
    gpu::encode_blocks(tables_.tables(), levels_, chance_of(moment), values, code, stream);
  }
  void decode_add(const std::byte* code, float weight, float* sum, void* stream) const override {
    gpu::decode_blocks(tables_.tables(), levels_, code, weight, sum, stream);
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

  void encode(float* values, const Moment& moment, std::byte* code, void* stream) override {
    gpu::encode_flags(tables_.tables(), settings_, chance_of(moment), values, code, static_cast<gpu::UnitSums*>(sums_.get()),
                      static_cast<gpu::PartWorth*>(worths_.get()), stream);
  }
  void decode_add(const std::byte* code, float weight, float* sum, void* stream) const override {
    gpu::decode_flags(tables_.tables(), settings_.kind, code, weight, sum, stream);
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
