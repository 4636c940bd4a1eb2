#include "paceline/data_parallel/exchange_memory.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "paceline/comm/engine.h"

namespace paceline::data_parallel {

// Checks that comm's numbers of LibTorch's types (comm/buffer.cpp) are right.
static_assert(static_cast<int>(at::kByte) == 0 && static_cast<int>(at::kChar) == 1 && static_cast<int>(at::kInt) == 3 &&
              static_cast<int>(at::kLong) == 4 && static_cast<int>(at::kHalf) == 5 && static_cast<int>(at::kFloat) == 6 &&
              static_cast<int>(at::kDouble) == 7 && static_cast<int>(at::kBFloat16) == 15);
static_assert(comm::TensorLike<at::Tensor>);

tensor::Allocate allocate_from(comm::Communicator& comm) {
  return [&comm](std::int64_t elements, const at::TensorOptions& options) {
    if (!options.device().is_cpu() || comm.size() == 1 || comm::engine_of(comm.engine()).gpu == comm::Engine::Gpu::own)
      return tensor::allocate_pages(elements, options);
    const comm::Memory memory = comm.allocate(std::max<std::int64_t>(elements, 1) * static_cast<std::int64_t>(options.dtype().itemsize()));
    return at::from_blob(
        memory.get(), {elements}, [kept = std::make_shared<comm::Memory>(memory)](void*) { kept->reset(); }, options);
  };
}

}  // namespace paceline::data_parallel
