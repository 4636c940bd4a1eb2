// What cuda_optimizer.h declares, in a build without CUDA.
#if !PACELINE_WITH_CUDA

#include "paceline/base/error.h"
#include "paceline/optim/cuda_optimizer.h"

namespace paceline::optim {
namespace {

[[noreturn]] void refuse() {
  throw ConfigError("this Paceline was built without CUDA; configure it with -DPACELINE_CUDA=ON, or choose device cpu");
}

}  // namespace

std::unique_ptr<CudaOptimizer> make_cuda_optimizer(const OptimConfig&, std::span<const Segment>) { refuse(); }

void cast_bf16(const float*, std::uint16_t*, std::int64_t, void*) { refuse(); }

}  // namespace paceline::optim

#endif
