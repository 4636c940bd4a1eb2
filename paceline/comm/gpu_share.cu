#include <cuda_runtime.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "paceline/base/error.h"
#include "paceline/comm/gpu.h"

namespace paceline::comm::gpu {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(Card::handle));

[[noreturn]] void refuse(const std::string& what, cudaError_t why) {
  cudaGetLastError();  // clears the error, which the runtime would return to the next caller
  throw ConfigError("cuda: " + what + " (" + cudaGetErrorString(why) + ")");
}

/// Memory of a thread of this process, perhaps on another GPU.
std::shared_ptr<void> open_own(void* address) {
  int current = 0;
  const int device = device_of(address);
  if (const cudaError_t result = cudaGetDevice(&current); result != cudaSuccess) refuse("no device", result);
  if (device != current) reach(device);
  return {address, [](void*) {}};
}

}  // namespace

int device_of(const void* data) {
  cudaPointerAttributes memory{};
  int current = 0;
  cudaError_t result = cudaPointerGetAttributes(&memory, data);
  if (result == cudaSuccess) result = cudaGetDevice(&current);
  if (result != cudaSuccess) refuse("cannot tell where memory lies", result);
  return memory.type == cudaMemoryTypeDevice ? memory.device : current;
}

void reach(int device) {
  int current = 0, can = 0;
  cudaError_t result = cudaGetDevice(&current);
  if (result == cudaSuccess) result = cudaDeviceCanAccessPeer(&can, current, device);
  if (result == cudaSuccess) result = can ? cudaDeviceEnablePeerAccess(device, 0) : cudaErrorPeerAccessUnsupported;
  if (result == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError(), result = cudaSuccess;
  if (result != cudaSuccess)
    refuse("GPU " + std::to_string(current) + " cannot read memory of GPU " + std::to_string(device) +
               "; use comm.engine=nccl with one GPU per rank, or let all ranks share one GPU",
           result);
}

std::shared_ptr<void> share(std::int64_t bytes, Card& card) {
  void* memory = nullptr;
  if (const cudaError_t result = cudaMalloc(&memory, static_cast<std::size_t>(bytes)); result != cudaSuccess)
    refuse("the GPU has no " + std::to_string(bytes >> 20) + " MiB left through which ranks exchange data; lower data.batch", result);
  std::shared_ptr<void> owned(memory, [](void* own) { cudaFree(own); });
  cudaIpcMemHandle_t handle;
  cudaError_t result = cudaMemset(memory, 0, static_cast<std::size_t>(bytes));
  if (result == cudaSuccess) result = cudaStreamSynchronize(nullptr);  // other streams do not wait for it
  if (result == cudaSuccess) result = cudaIpcGetMemHandle(&handle, memory);
  if (result != cudaSuccess)
    refuse("processes cannot share memory of this GPU; let workers be threads: paceline train --workers N", result);
  card.process = getpid(), card.address = memory;
  std::memcpy(card.handle, &handle, sizeof(handle));
  return owned;
}

std::shared_ptr<void> open(const Card& card) {
  if (card.process == getpid()) return open_own(card.address);  // IPC only works between different processes
  cudaIpcMemHandle_t handle;
  std::memcpy(&handle, card.handle, sizeof(handle));
  void* memory = nullptr;
  if (const cudaError_t result = cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess); result != cudaSuccess)
    refuse("this GPU cannot read memory of the GPU of process " + std::to_string(card.process) +
               "; use comm.engine=nccl with one GPU per rank, or workers that are threads: paceline train --workers N",
           result);
  return {memory, [](void* mapped) { cudaIpcCloseMemHandle(mapped); }};
}

}  // namespace paceline::comm::gpu
