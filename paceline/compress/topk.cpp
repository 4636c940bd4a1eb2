// topk: the largest magnitudes of a range with their indices; the others stay in the residual.
//
// Aji, Heafield, "Sparse communication for distributed gradient descent", EMNLP 2017; Stich, Cordonnier, Jaggi, "Sparsified SGD with
// memory", NeurIPS 2018, show that it converges as SGD does, given error feedback. k is density × values, rounded up. On the wire: 8 bytes
// per value sent; ratio 1 / (2 · density): 50 for 1%.
#include "paceline/compress/device_code.h"
#include "paceline/compress/top_coder.h"

namespace paceline::compress {

double topk_density(const CompressConfig& config, double) {
  constexpr double kDefault = 0.01;
  return config.density > 0 ? config.density : kDefault;
}

Compressor topk() {
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> {
            return std::make_unique<TopCoder>("topk", config, topk_density);
          },
          .on_gpu = topk_on_gpu};
}

}  // namespace paceline::compress
