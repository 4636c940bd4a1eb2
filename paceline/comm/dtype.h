// Element types, and how they are reduced.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace paceline::comm {

enum class DType : std::uint8_t { f32, f64, f16, bf16, i8, u8, i32, i64 };
inline constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i32, DType::i64};
enum class ReduceOp : std::uint8_t { sum, mean, min, max };
inline constexpr ReduceOp kReduceOps[] = {ReduceOp::sum, ReduceOp::mean, ReduceOp::min, ReduceOp::max};

constexpr std::int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::i8:
    case DType::u8: return 1;
  }
  return 0;
}

std::string_view name_of(DType dtype);
std::string_view name_of(ReduceOp op);

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) {
    return DType::f32;
  } else if constexpr (std::is_same_v<T, double>) {
    return DType::f64;
  } else if constexpr (std::is_same_v<T, std::int8_t>) {
    return DType::i8;
  } else if constexpr (std::is_same_v<T, std::uint8_t> || std::is_same_v<T, std::byte>) {
    return DType::u8;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return DType::i32;
  } else {
    static_assert(std::is_integral_v<T> && sizeof(T) == 8, "no DType for this type; give one");
    return DType::i64;
  }
}

}  // namespace paceline::comm
