// The memory that an operation reads and writes, made from a program's own data: a vector, a span or a tensor.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "paceline/base/gpu_stream.h"
#include "paceline/comm/dtype.h"
#include "paceline/schedule/schedule.h"

namespace paceline::comm {

/// What at::Tensor looks like. Spelled out, because this room does without LibTorch.
template <class T>
concept TensorLike = requires(const T& tensor) {
  { tensor.data_ptr() } -> std::convertible_to<void*>;
  { tensor.numel() } -> std::convertible_to<std::int64_t>;
  { tensor.is_contiguous() } -> std::convertible_to<bool>;
  { tensor.is_cpu() } -> std::convertible_to<bool>;
  { tensor.is_cuda() } -> std::convertible_to<bool>;
  { tensor.device().index() } -> std::convertible_to<int>;
  static_cast<int>(tensor.scalar_type());
};

/// The type with this number in at::ScalarType. Throws ConfigError if collectives do not support it; `name` is for the message.
DType dtype_of_scalar_type(int number, std::string_view name);

/// Whoever starts the operation keeps the memory alive and untouched until the Work is done. On a GPU: until wait() has returned, and
/// whatever uses or frees the memory afterwards must be put on the buffer's stream.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  bool on_gpu = false;
  void* stream = nullptr;  // on a GPU: the stream that fills the buffer, and on which its users follow

  Buffer() = default;
  Buffer(void* memory, std::int64_t elements, DType type) : data(memory), count(elements), dtype(type) {}
  /// GPU memory.
  Buffer(void* memory, std::int64_t elements, DType type, void* gpu_stream)
      : data(memory), count(elements), dtype(type), on_gpu(true), stream(gpu_stream) {}
  template <class T>
  Buffer(T* memory, std::int64_t elements) : Buffer(memory, elements, dtype_of<T>()) {}
  template <class T>
  Buffer(std::vector<T>& values) : Buffer(values.data(), static_cast<std::int64_t>(values.size())) {}  // NOLINT: a vector is a buffer
  template <class T, std::size_t kExtent>
  Buffer(std::span<T, kExtent> values) : Buffer(values.data(), static_cast<std::int64_t>(values.size())) {}  // NOLINT: so is a span
  /// All of a tensor; on a GPU with LibTorch's current stream. Throws ConfigError if the tensor is not contiguous, is neither on the CPU
  /// nor on a CUDA device, or has a type that no collective supports.
  template <TensorLike T>
  Buffer(const T& tensor) {  // NOLINT: so is a tensor
    const auto type = tensor.scalar_type();
    if constexpr (requires { std::string_view(toString(type)); }) {
      dtype = dtype_of_scalar_type(static_cast<int>(type), toString(type));
    } else {
      dtype = dtype_of_scalar_type(static_cast<int>(type), {});
    }
    check_tensor(tensor.is_cpu() || tensor.is_cuda(), tensor.is_contiguous());
    data = tensor.data_ptr(), count = tensor.numel(), on_gpu = tensor.is_cuda();
    if (on_gpu) stream = current_gpu_stream(static_cast<int>(tensor.device().index()));
  }

  std::int64_t bytes() const { return count * size_of(dtype); }
  Buffer slice(schedule::Range range) const {
    Buffer part = *this;
    part.data = static_cast<std::byte*>(data) + range.begin * size_of(dtype), part.count = range.size();
    return part;
  }

 private:
  static void check_tensor(bool reachable, bool contiguous);
};

}  // namespace paceline::comm
