// dgc: top-k of a residual that includes the momentum, with a density that falls during the first epochs.
//
//   u ← m·u + g        v ← v + u        send the largest of v, and zero u and v there
//   density in epoch i of n = warmup_epochs: 25% · (density / 25%)^(i / (n−1)); from epoch n−1 on: density
//
// Lin, Han, Mao, Wang, Dally, "Deep gradient compression", ICLR 2018. This file has the coding of v. Momentum (momentum_correction in
// the registry's row) and clipping of g (dgc_clip) are in feedback.h, which recognises what was sent because v is exactly zero there. On
// the wire: 8 bytes per value sent; ratio 1 / (2 · density): 500 for 0.1%.
#include <algorithm>
#include <cmath>

#include "paceline/compress/device_code.h"
#include "paceline/compress/top_coder.h"

namespace paceline::compress {

double dgc_density(const CompressConfig& config, double epoch) {
  constexpr double kFirst = 0.25, kDefault = 0.001;
  const double last = config.density > 0 ? config.density : kDefault;
  const double done = config.warmup_epochs > 1 ? std::min(std::floor(epoch) / (config.warmup_epochs - 1), 1.0) : 1.0;
  return last >= kFirst || done >= 1 ? last : kFirst * std::pow(last / kFirst, done);
}

Compressor dgc() {
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> {
            return std::make_unique<TopCoder>("dgc", config, dgc_density);
          },
          .on_gpu = dgc_on_gpu,
          .momentum_correction = true};
}

}  // namespace paceline::compress
