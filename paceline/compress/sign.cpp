// sign: every value votes by its sign; the mean of the workers, encoded again, is the majority's vote.
//
//   a becomes s · sign(a),   s = sign_scale, or the mean magnitude of the tensor if that is 0
//
// Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD: compressed optimisation for non-convex problems", ICML 2018 (the vote);
// Karimireddy, Rebjock, Stich, Jaggi, "Error feedback fixes SignSGD", ICML 2019 (the mean magnitude). A zero, like a tied vote, gets a
// random sign: one bit has no third value, and a fixed sign would push all parameters in one direction. On the wire: a bit per value
// and 4 bytes per tensor; ratio 32.
#include "paceline/compress/compressor.h"
#include "paceline/compress/device_code.h"
#include "paceline/compress/sign_coder.h"

namespace paceline::compress {
namespace {

struct Sign {
  static constexpr const char* kName = "sign";
  static constexpr int kScales = 1;
  static constexpr bool kTies = true;

  static Worth worth(const Statistics& known, std::int64_t n, const CompressConfig& config) {
    const double mean_magnitude = (known.positive - known.negative) / static_cast<double>(n);
    const auto scale = static_cast<float>(config.sign_scale > 0 ? config.sign_scale : mean_magnitude);
    return {scale, -scale};
  }
};

}  // namespace

Compressor sign() {
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> { return std::make_unique<SignCoder<Sign>>(config); },
          .on_gpu = sign_on_gpu};
}

}  // namespace paceline::compress
