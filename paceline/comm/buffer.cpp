#include "paceline/comm/buffer.h"

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::comm {

// The numbers are part of PyTorch's file format; data_parallel/exchange_memory.cpp checks them against LibTorch's.
DType dtype_of_scalar_type(int number, std::string_view name) {
  switch (number) {
    case 0: return DType::u8;
    case 1: return DType::i8;
    case 3: return DType::i32;
    case 4: return DType::i64;
    case 5: return DType::f16;
    case 6: return DType::f32;
    case 7: return DType::f64;
    case 15: return DType::bf16;
    default:
      if (name == "Undefined" || name == "UNKNOWN_SCALAR")  // depending on LibTorch's version
        throw ConfigError("a collective was given an undefined tensor; give it a defined one, of the same size on all ranks");
      throw ConfigError(fmt::format("collectives do not support tensors of type {}; convert it first, e.g. tensor.to(torch::kFloat)",
                                    name.empty() ? std::to_string(number) : std::string(name)));
  }
}

void Buffer::check_tensor(bool reachable, bool contiguous) {
  if (!reachable) throw ConfigError("collectives take tensors on the CPU and on CUDA devices; move it there first, e.g. tensor.cpu()");
  if (!contiguous)
    throw ConfigError(
        "a collective needs a contiguous tensor, but this one is not; pass tensor.contiguous(), and copy the result back with "
        "tensor.copy_()");
}

}  // namespace paceline::comm
