// threshold: ±τ for every value beyond ±τ, nothing for the others; the rest stays in the residual.
//
//   |a| > τ becomes τ · sign(a), others 0
//
// Strom, "Scalable distributed DNN training using commodity GPU cloud computing", Interspeech 2015. A value larger than 2τ is sent again in
// the next steps. On the wire: 4 bytes per value sent, plus 4; the ratio depends on the data and on τ.
//
// Code: τ (NaN if one of the values sent is NaN or infinite), then for each value 2 · place + (1 if negative), ascending.
#include <algorithm>

#include "paceline/compress/device_code.h"
#include "paceline/compress/sparse.h"

namespace paceline::compress {
namespace {

constexpr std::int64_t kIndex = sizeof(std::uint32_t);

class Threshold final : public Coder {
 public:
  explicit Threshold(const CompressConfig& config) : threshold_(static_cast<float>(config.threshold)) {}

  std::int64_t bound(const RangeLayout& layout) const override { return kIndex * (1 + layout.elements()); }

  std::int64_t encode(const RangeLayout& layout, float* values, const CodingContext&, std::byte* code) override {
    check_length("threshold", layout, 31);
    std::byte* to = code + kIndex;
    std::uint32_t largest = 0;
    for (const Hit hit : hits_.find(layout, values, magnitude(threshold_) + 1)) {
      const std::uint32_t sign = hit.bits >> 31;
      store(to, hit.index * 2 + sign);
      to += kIndex;
      largest = std::max(largest, hit.size());
      values[hit.index] -= sign != 0 ? -threshold_ : threshold_;
    }
    store(code, largest < kInfinity ? threshold_ : kNan);
    return to - code;
  }

  void decode_add(const RangeLayout& layout, std::span<const std::byte> code, float weight, float* sum) const override {
    const auto bytes = static_cast<std::int64_t>(code.size());
    if (bytes % kIndex != 0 || bytes < kIndex || bytes > bound(layout))
      refuse("threshold", std::to_string(bytes) + " bytes are not a multiple of 4 between 4 and " + std::to_string(bound(layout)));
    const std::byte* words = code.data() + kIndex;
    const auto word = [&](std::int64_t i) { return load<std::uint32_t>(words + kIndex * i); };
    const std::int64_t count = bytes / kIndex - 1;
    check_places("threshold", layout, count, [&](std::int64_t i) { return word(i) >> 1; });
    const float step = weight * load<float>(code.data());
    for (std::int64_t i = 0; i < count; ++i) sum[word(i) >> 1] += (word(i) & 1u) != 0 ? -step : step;
  }

  Averaging averaging() const override { return Averaging::sparse; }

 private:
  float threshold_;
  Hits hits_;
};

}  // namespace

Compressor threshold() {
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> { return std::make_unique<Threshold>(config); },
          .on_gpu = threshold_on_gpu};
}

}  // namespace paceline::compress
