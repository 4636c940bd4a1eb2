// GPU memory with fixed addresses and changing pages, by the driver's virtual memory management. Released pages are kept for the next range
// that is committed; beyond a number, unused pages return to the driver (shrink).
//
// To change the page behind an address, the host must wait for the GPU. So a released page stays where it is until another address needs
// it, and is then mapped at both: a model that goes through its units step by step has the same page behind the same address every time,
// and from the second step on, nothing changes any more. An address without its own page reads arbitrary values, and must not be written:
// the page may already belong to another address. Addresses that never had a page share one.
//
// The order of uses is that of the current stream: work on another one that uses a range makes the current stream wait for it before
// the range is taken away.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace paceline::tensor {

/// Not thread-safe.
class DevicePages {
 public:
  /// Zeroed memory, all of it with pages. Undefined if the build or the driver cannot do this; ConfigError if memory is short.
  static at::Tensor allocate(std::int64_t elements, const at::TensorOptions& options);
  /// The pages of a tensor that allocate() returned, as long as that lives; null for any other.
  static DevicePages* of(const at::Tensor& flat);

  virtual ~DevicePages() = default;
  virtual std::size_t page_bytes() const = 0;
  virtual std::size_t held() const = 0;       // pages, including unused ones
  virtual std::int64_t mappings() const = 0;  // how often the page of an address has changed, each of which made the host wait for the GPU
  /// Gives pages [first, first + count) of the addresses, none of which has any, their own memory, with arbitrary content.
  /// ConfigError if memory is short; then none of them gets any, and what was allocated is kept for the next call, or for shrink().
  virtual void bring(std::size_t first, std::size_t count) = 0;
  /// Takes it away again.
  virtual void take_away(std::size_t first, std::size_t count) = 0;
  /// Returns unused pages until at most this many are left.
  virtual void shrink(std::size_t idle) = 0;
};

}  // namespace paceline::tensor
