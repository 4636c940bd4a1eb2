#include "paceline/compress/top_coder.h"

#include <algorithm>
#include <cmath>

#include "paceline/compress/draws.h"

namespace paceline::compress {
namespace {

constexpr std::int64_t kWord = 4, kEntry = 2 * kWord;
constexpr double kSampled = 0.01;
constexpr std::int64_t kLeastSample = 4096;

}  // namespace

std::int64_t count_of(const RangeLayout& layout, double density) {
  const std::int64_t elements = layout.elements();
  return std::min(elements, static_cast<std::int64_t>(std::ceil(density * static_cast<double>(elements))));
}

std::int64_t TopCoder::bound(const RangeLayout& layout) const { return kEntry * count_of(layout, density_(config_, 0)); }

/// Finds at least k values, which include the k largest.
std::span<const Hit> TopCoder::candidates(const RangeLayout& layout, const float* values, const CodingContext& context, std::int64_t k) {
  const auto length = static_cast<double>(layout.length);
  const std::int64_t sample = std::min(layout.length, std::max(kLeastSample, static_cast<std::int64_t>(kSampled * length)));
  const Draws draws(context);
  sizes_.resize(static_cast<std::size_t>(sample));
  for (std::int64_t i = 0; i < sample; ++i) {  // one value from each of `sample` equal stretches
    const std::int64_t begin = layout.length * i / sample, end = layout.length * (i + 1) / sample;
    const std::uint32_t draw = draws.word(static_cast<std::uint32_t>(i));
    sizes_[static_cast<std::size_t>(i)] =
        magnitude(values[begin + static_cast<std::int64_t>(draw % static_cast<std::uint32_t>(end - begin))]);
  }
  const double expected = static_cast<double>(k) * static_cast<double>(sample) / length;
  double rank = expected + 3 * std::sqrt(expected) + 1;  // three deviations: a second pass is rarely needed
  while (true) {
    const bool all = rank >= static_cast<double>(sample);
    const auto found = hits_.find(layout, values, all ? 0 : kth_largest(sizes_, static_cast<std::int64_t>(rank)));
    if (static_cast<std::int64_t>(found.size()) >= k) return found;
    rank *= 4;
  }
}

std::int64_t TopCoder::encode(const RangeLayout& layout, float* values, const CodingContext& context, std::byte* code) {
  check_length(name_, layout, 32);
  const std::int64_t k = count_of(layout, density_(config_, context.epoch));
  if (k == 0) return 0;
  const std::span<const Hit> hits = candidates(layout, values, context, k);
  sizes_.resize(hits.size());
  std::transform(hits.begin(), hits.end(), sizes_.begin(), [](const Hit& hit) { return hit.size(); });
  const std::uint32_t least = kth_largest(sizes_, k);
  std::int64_t equal = k - std::count_if(sizes_.begin(), sizes_.end(), [&](std::uint32_t size) { return size > least; });

  std::byte *place = code, *value = code + kWord * k;
  for (const Hit& hit : hits) {
    if (hit.size() < least || (hit.size() == least && equal-- <= 0)) continue;
    store(place, hit.index);
    store(value, hit.bits);
    values[hit.index] = 0;
    place += kWord;
    value += kWord;
  }
  return kEntry * k;
}

// Not contracted, so that all processors add the same bits: see base/simd.h.
[[gnu::optimize("fp-contract=off")]] void TopCoder::decode_add(const RangeLayout& layout, std::span<const std::byte> code, float weight,
                                                               float* sum) const {
  const auto bytes = static_cast<std::int64_t>(code.size());
  if (bytes % kEntry != 0 || bytes > bound(layout))
    refuse(name_, std::to_string(bytes) + " bytes are not a multiple of 8 up to " + std::to_string(bound(layout)));
  const std::int64_t k = bytes / kEntry;
  const auto place = [&](std::int64_t i) { return load<std::uint32_t>(code.data() + kWord * i); };
  check_places(name_, layout, k, place);
  const std::byte* values = code.data() + kWord * k;
  for (std::int64_t i = 0; i < k; ++i) sum[place(i)] += weight * load<float>(values + kWord * i);
}

}  // namespace paceline::compress
