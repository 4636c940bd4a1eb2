// topk: the largest magnitudes of a range with their indices; the others stay in the residual.
//
// Aji, Heafield, "Sparse communication for distributed gradient descent", EMNLP 2017; Stich, Cordonnier, Jaggi, "Sparsified SGD with
// memory", NeurIPS 2018, show that it converges as SGD does, given error feedback. k is density × values, rounded up. On the wire: 8 bytes
// per value sent; ratio 1 / (2 · density): 50 for 1%.
#include "paceline/compress/compressor.h"
#include "paceline/compress/top_coder.h"

namespace paceline::compress {
namespace {

constexpr double kTopKDensity = 0.01;

class TopK final : public TopCoder {
 public:
  explicit TopK(const CompressConfig& config) : density_(config.density > 0 ? config.density : kTopKDensity) {}

 private:
  const char* name() const override { return "topk"; }
  double density(double) const override { return density_; }
  double largest_density() const override { return density_; }

  double density_;
};

}  // namespace

Compressor topk() {
  return {.coder = [](const CompressConfig& config) -> std::unique_ptr<Coder> { return std::make_unique<TopK>(config); }};
}

}  // namespace paceline::compress
