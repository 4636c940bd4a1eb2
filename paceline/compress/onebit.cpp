// onebit: the sign of every value, and for each tensor the mean of its non-negative values and of its negative ones.
//
//   a ≥ 0 becomes mean(a : a ≥ 0),   a < 0 becomes mean(a : a < 0)
//
// Seide, Fu, Droppo, Li, Yu, "1-bit stochastic gradient descent and its application to data-parallel distributed training of speech DNNs",
// Interspeech 2014 (there for each column of a matrix, here for each tensor). Of all codes with a sign and two values, it has the least
// square error; without error feedback it hardly converges. On the wire: a bit per value and 8 bytes per tensor; ratio 32.
#include "paceline/compress/compressor.h"
#include "paceline/compress/device_code.h"
#include "paceline/compress/sign_coder.h"

namespace paceline::compress {
namespace {

struct OneBit {
  static constexpr const char* kName = "onebit";
  static constexpr int kScales = 2;
  static constexpr bool kTies = false;

  static Worth worth(const Statistics& known, std::int64_t n, const CompressConfig&) {
    const auto mean = [](double sum, std::int64_t count) {
      return count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
    };
    return {mean(known.positive, n - known.negatives), mean(known.negative, known.negatives)};
  }
};

}  // namespace

Compressor onebit() {
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> { return std::make_unique<SignCoder<OneBit>>(config); },
          .on_gpu = onebit_on_gpu};
}

}  // namespace paceline::compress
