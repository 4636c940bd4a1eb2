// fp16: every value rounded to the nearest half (11 significant bits, 6·10⁻⁸ to 65504).
//
// Micikevicius et al., "Mixed precision training", ICLR 2018, send gradients in this way. On the wire: 2 bytes per value, ratio 2. Relative
// error at most 2⁻¹¹ from 6.1·10⁻⁵ up; below, an absolute error of at most 3·10⁻⁸. Magnitudes of 65520 and above become infinity, and so do
// sums of the workers that reach it.
#include "paceline/compress/compressor.h"
#include "paceline/compress/half_linear.h"

namespace paceline::compress {

Compressor fp16() {
  return {.linear = [](const CompressConfig&, const RangeLayout& layout, std::uint64_t) -> std::unique_ptr<Linear> {
            return std::make_unique<HalfLinear<Float16>>(layout, Round::Type::f16);
          },
          .rounds_to = Round::Type::f16};
}

}  // namespace paceline::compress
