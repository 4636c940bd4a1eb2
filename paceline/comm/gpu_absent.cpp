#include "paceline/comm/gpu.h"

#if !PACELINE_WITH_CUDA

#include "paceline/base/error.h"

namespace paceline::comm::gpu {

bool available() { return false; }
void synchronize(void*) { throw InternalError("this build has no CUDA"); }
Mark::Mark() = default;
Mark::~Mark() = default;
void Mark::record(void*) { throw InternalError("this build has no CUDA"); }
void Mark::wait() const { throw InternalError("this build has no CUDA"); }
void Mark::hold(void*) const { throw InternalError("this build has no CUDA"); }
Queue::Queue() { throw InternalError("this build has no CUDA"); }
Queue::~Queue() = default;
OnDeviceOf::OnDeviceOf(const void*) { throw InternalError("this build has no CUDA"); }
OnDeviceOf::~OnDeviceOf() = default;
int device_of(const void*) { throw InternalError("this build has no CUDA"); }
void reach(int) { throw InternalError("this build has no CUDA"); }
std::shared_ptr<void> share(std::int64_t, Card&) { throw InternalError("this build has no CUDA"); }
std::shared_ptr<void> open(const Card&) { throw InternalError("this build has no CUDA"); }
void copy(void*, const void*, std::int64_t, void*) { throw InternalError("this build has no CUDA"); }
void combine_all(DType, ReduceOp, std::span<const void* const>, std::span<void* const>, std::int64_t, int, void*) {
  throw InternalError("this build has no CUDA");
}

}  // namespace paceline::comm::gpu

#endif
