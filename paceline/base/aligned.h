// Vectors that begin at a cache line, as LibTorch's own tensors do. Vendors' libraries may choose their loops, and with them the order of
// additions, by the address modulo 64, and malloc only promises multiples of 16. The widest load is as long as a cache line.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace paceline {

template <class T>
struct CacheLineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};

  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}  // NOLINT: one converts to another, as allocators do

  T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kAlignment)); }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, kAlignment); }
  template <class U>
  bool operator==(const CacheLineAllocator<U>&) const {
    return true;
  }
};

template <class T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace paceline
