// The safetensors format: u64 little-endian N, N bytes of JSON, then the data of all tensors without gaps.
//
// An entry of the JSON is "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]} with offsets counted from the end of the
// header; "__metadata__" maps text to text. Such a file contains no code, so an untrusted one is safe to open:
// the reader checks that the tensors cover the data exactly once, before any of it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paceline/base/files.h"

namespace paceline::safetensors {

enum class Dtype { F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL };

std::string_view name_of(Dtype dtype);
std::size_t size_of(Dtype dtype);  ///< bytes of one element

struct Tensor {
  std::string name;
  Dtype dtype = Dtype::F32;
  std::vector<std::int64_t> shape;  ///< empty: a scalar
  std::span<const std::byte> data;  ///< borrowed
};

using Metadata = std::map<std::string, std::string>;

/// An open file. Its tensors point into the mapping, each aligned to its element type if the writer took care of that (as this one does).
class File {
 public:
  /// Throws DataError that says what is wrong and where.
  explicit File(const std::filesystem::path& path);

  const std::vector<Tensor>& tensors() const { return tensors_; }  ///< in the order of their data
  const Tensor* find(std::string_view name) const;                 ///< nullptr if there is none
  const Metadata& metadata() const { return metadata_; }

 private:
  MappedFile mapped_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  Metadata metadata_;
};

/// Writes the tensors, those with larger elements first so that each is aligned, otherwise in their order. Atomic, as AtomicFile is. Throws
/// DataError if writing fails, InternalError if two names are equal or a shape does not match its data.
FileStamp write(const std::filesystem::path& path, std::span<const Tensor> tensors, const Metadata& metadata = {});

/// The same as bytes in memory, and back: tensors that point into `bytes`, which come from `source`.
std::string to_bytes(std::span<const Tensor> tensors);
std::vector<Tensor> from_bytes(std::span<const std::byte> bytes, const std::string& source);

}  // namespace paceline::safetensors
