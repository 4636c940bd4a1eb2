// bf16: every value rounded to the nearest bfloat16 (8 significant bits, the range of a float).
//
// Kalamkar et al., "A study of bfloat16 for deep learning training", 2019. On the wire: 2 bytes per value, ratio 2. Relative error at most
// 2⁻⁸; only magnitudes of 3.395·10³⁸ and above become infinity.
#include "paceline/compress/compressor.h"
#include "paceline/compress/half_linear.h"

namespace paceline::compress {

Compressor bf16() {
  return {.linear = [](const CompressConfig&, const RangeLayout& layout, std::uint64_t) -> std::unique_ptr<Linear> {
            return std::make_unique<HalfLinear<BFloat16>>(layout, Round::Type::bf16);
          },
          .rounds_to = Round::Type::bf16};
}

}  // namespace paceline::compress
