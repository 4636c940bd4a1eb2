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

#include "paceline/compress/compressor.h"
#include "paceline/compress/top_coder.h"

namespace paceline::compress {
namespace {

constexpr double kFirstDensity = 0.25, kDgcDensity = 0.001;

class Dgc final : public TopCoder {
 public:
  explicit Dgc(const CompressConfig& config)
      : density_(config.density > 0 ? config.density : kDgcDensity), warmup_epochs_(config.warmup_epochs) {}

 private:
  const char* name() const override { return "dgc"; }
  double largest_density() const override { return warmup_epochs_ > 1 ? std::max(density_, kFirstDensity) : density_; }

  double density(double epoch) const override {
    const double done = warmup_epochs_ > 1 ? std::min(std::floor(epoch) / (warmup_epochs_ - 1), 1.0) : 1.0;
    return density_ >= kFirstDensity || done >= 1 ? density_ : kFirstDensity * std::pow(density_ / kFirstDensity, done);
  }

  double density_, warmup_epochs_;
};

}  // namespace

Compressor dgc() {
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> { return std::make_unique<Dgc>(config); },
          .momentum_correction = true};
}

}  // namespace paceline::compress
