// topk and dgc: exactly k values, those of the largest magnitude, with their indices.
//
// A sample gives an approximate k-th magnitude; one pass over the range finds the values beyond it, a few more than k, and among these,
// counting finds the k-th itself (as in Lin et al. 2018). The sample only affects the amount of work: the code is the same for every
// sample. Among values of the same magnitude, those with smaller indices come first.
//
// Code: k indices (4 bytes each, ascending), then the k values.
#pragma once

#include "paceline/compress/sparse.h"

namespace paceline::compress {

/// The share of the values that is sent in an epoch; it never grows.
using Density = double (*)(const CompressConfig& config, double epoch);
double topk_density(const CompressConfig& config, double epoch);
double dgc_density(const CompressConfig& config, double epoch);

/// How many values of the range have this share.
std::int64_t count_of(const RangeLayout& layout, double density);

class TopCoder final : public Coder {
 public:
  TopCoder(const char* name, const CompressConfig& config, Density density) : name_(name), config_(config), density_(density) {}

  std::int64_t bound(const RangeLayout& layout) const override;
  std::int64_t encode(const RangeLayout& layout, float* values, const CodingContext& context, std::byte* code) override;
  void decode_add(const RangeLayout& layout, std::span<const std::byte> code, float weight, float* sum) const override;
  Averaging averaging() const override { return Averaging::sparse; }

 private:
  std::span<const Hit> candidates(const RangeLayout& layout, const float* values, const CodingContext& context, std::int64_t k);

  const char* name_;
  CompressConfig config_;
  Density density_;
  Hits hits_;
  std::vector<std::uint32_t> sizes_;
};

}  // namespace paceline::compress
