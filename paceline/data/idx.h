// IDX, the format of MNIST: magic 00 00 08 <rank>, one big-endian 32-bit size per dimension, then the bytes. Plain or compressed with gzip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace paceline::data {

struct Idx {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;
  std::int64_t header_bytes() const { return 4 + 4 * static_cast<std::int64_t>(shape.size()); }
};

/// Reads a file of unsigned bytes with `rank` dimensions. Throws DataError for any other file, and for one that is too short or too long.
Idx read_idx(const std::filesystem::path& file, int rank);

}  // namespace paceline::data
