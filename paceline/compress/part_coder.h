// The common part of quantisers: they handle a layout part by part, and the size of a part's code depends only on the part.
#pragma once

#include "paceline/compress/code.h"
#include "paceline/compress/compressor.h"
#include "paceline/compress/draws.h"

namespace paceline::compress {

class PartCoder : public Coder {
 public:
  explicit PartCoder(const char* name) : name_(name) {}

  std::int64_t bound(const RangeLayout& layout) const final {
    std::int64_t bytes = 0;
    for (const Part& part : layout.parts) bytes += bytes_of(part);
    return bytes;
  }

  std::int64_t encode(const RangeLayout& layout, float* values, const CodingContext& context, std::byte* code) final {
    const Draws draws(context);
    std::byte* to = code;
    for (const Part& part : layout.parts) {
      encode_part(part, values + part.offset, draws.from(part.offset), to);
      to += bytes_of(part);
    }
    return to - code;
  }

  void decode_add(const RangeLayout& layout, std::span<const std::byte> code, float weight, float* sum) const final {
    expect_size(name_, code, bound(layout));
    const std::byte* from = code.data();
    for (const Part& part : layout.parts) {
      check_part(part, from);
      from += bytes_of(part);
    }
    from = code.data();
    for (const Part& part : layout.parts) {
      decode_part(part, from, weight, sum + part.offset);
      from += bytes_of(part);
    }
  }

  Averaging averaging() const final { return Averaging::dense; }

 protected:
  const char* name() const { return name_; }

 private:
  virtual std::int64_t bytes_of(const Part& part) const = 0;
  /// `values` and `draws` begin with the part's first element.
  virtual void encode_part(const Part& part, float* values, const Draws& draws, std::byte* code) = 0;
  /// Throws DataError if the code is not valid; called for all parts before any is decoded.
  virtual void check_part(const Part&, const std::byte*) const {}
  virtual void decode_part(const Part& part, const std::byte* code, float weight, float* sum) const = 0;

  const char* name_;
};

}  // namespace paceline::compress
