// Checked wrappers of the CUDA and NCCL calls that the nccl engine makes, with RAII.
#pragma once

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include "paceline/base/error.h"
#include "paceline/comm/dtype.h"

namespace paceline::comm::nccl {

inline void require(cudaError_t result) {
  if (result != cudaSuccess) throw Error(fmt::format("nccl: {}", cudaGetErrorString(result)));
}
inline void require(ncclResult_t result) {
  if (result != ncclSuccess) throw Error(fmt::format("nccl: {}", ncclGetErrorString(result)));
}

inline ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::i8: return ncclInt8;
    case DType::u8: return ncclUint8;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
  }
  return ncclFloat32;
}

inline ncclRedOp_t op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return ncclSum;
    case ReduceOp::mean: return ncclAvg;
    case ReduceOp::min: return ncclMin;
    case ReduceOp::max: return ncclMax;
  }
  return ncclSum;
}

/// Sets this thread's current GPU for its scope: threads start with GPU 0.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    require(cudaGetDevice(&before_));
    require(cudaSetDevice(device));
  }
  ~OnDevice() { cudaSetDevice(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
};

/// A group of calls that NCCL starts together.
class Group {
 public:
  Group() { require(ncclGroupStart()); }
  ~Group() {
    if (open_) ncclGroupEnd();  // after an exception; a group left open would hold back all later calls
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  void end() {
    open_ = false;
    require(ncclGroupEnd());
  }

 private:
  bool open_ = true;
};

class Event {
 public:
  Event() { require(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace paceline::comm::nccl
