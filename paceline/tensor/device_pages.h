// Memory of a GPU whose addresses stay while the pages behind them come and go, by the driver's virtual memory management. What is taken
// away is there for the next range that comes; pages that nobody uses go back to the driver beyond a number (shrink).
//
// To change what lies behind an address the host must wait for the GPU. So a page that is taken away stays where it is until another
// address needs it, and then lies behind both: a model that goes through its units step by step has the same page behind the same address
// every time, and from the second step on nothing changes any more. Whoever reads an address without a page of its own reads anything, and
// nobody may write there: the page may be another's by now. Where there never was one, a page lies that all such addresses share.
//
// The order of uses is that of the current stream: whoever uses a range on another one lets the current stream wait for it before the range
// is taken away.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace paceline::tensor {

/// Not thread-safe.
class DevicePages {
 public:
  /// Zeroed memory, with pages behind all of it. Undefined where the build or the driver cannot do this; ConfigError where memory is short.
  static at::Tensor allocate(std::int64_t elements, const at::TensorOptions& options);
  /// Of a tensor that allocate() gave, as long as that lives; null for any other.
  static DevicePages* of(const at::Tensor& flat);

  virtual ~DevicePages() = default;
  virtual std::size_t page_bytes() const = 0;
  virtual std::size_t held() const = 0;       // pages, those that nobody uses included
  virtual std::int64_t mappings() const = 0;  // addresses whose page changed so far, in pages: each time the host waited for the GPU
  /// Pages [first, first + count) of the addresses have memory of their own from here on, which holds anything. None of them had.
  /// ConfigError where memory is short; then none of them has, and what came in vain is held for the next one, or for shrink().
  virtual void bring(std::size_t first, std::size_t count) = 0;
  /// The opposite.
  virtual void take_away(std::size_t first, std::size_t count) = 0;
  /// Gives unused pages back until at most so many are left.
  virtual void shrink(std::size_t idle) = 0;
};

}  // namespace paceline::tensor
