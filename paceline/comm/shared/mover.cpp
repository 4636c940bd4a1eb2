#include "paceline/comm/shared/mover.h"

#include <cstring>

#include "paceline/comm/gpu.h"
#include "paceline/comm/reduce.h"

namespace paceline::comm::shared {

void Mover::copy(void* to, const void* from, std::int64_t bytes, const Buffer& buffer) const {
  if (buffer.on_gpu) gpu::copy(to, from, bytes, buffer.stream);
  else std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void Mover::combine(const Operation& op, std::span<const void* const> ins, std::span<void* const> outs, std::int64_t count,
                    int divisor) const {
  if (op.buffer.on_gpu) gpu::combine_all(op.buffer.dtype, op.op, ins, outs, count, divisor, op.buffer.stream);
  else combine_all(op.buffer.dtype, op.op, ins, outs, count, divisor);
}

}  // namespace paceline::comm::shared
