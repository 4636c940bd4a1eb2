// Finding and reading a dataset's files, with errors that say what is wrong and how to fix it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "paceline/data/dataset.h"

namespace paceline::data {

/// Where a dataset is: data.root, or `standard` below data.root or below $PACELINE_DATA. `holds` describes in error messages what must be
/// there.
std::filesystem::path find_root(const DataConfig& config, std::string_view standard, std::string_view holds);

/// Whether something is there. DataError if that cannot be determined, as in a folder without permission.
bool is_there(const std::filesystem::path& path);

/// The content of a file whose size is known in advance. Throws DataError with the expected and the actual size.
std::string read_file_of_size(const std::filesystem::path& file, std::int64_t expected_bytes);

/// The content of a file as numbers.
inline std::span<const std::uint8_t> bytes_of(const std::string& content) {
  return {reinterpret_cast<const std::uint8_t*>(content.data()), content.size()};
}

}  // namespace paceline::data
