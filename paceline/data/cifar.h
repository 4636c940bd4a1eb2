// The binary version of CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): records of one or two label bytes and 3×32×32 bytes, no header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "paceline/data/image_set.h"

namespace paceline::data {

/// Files of one split. Without a header, the size is the only possible check, so the number of records is part of the format.
struct CifarFiles {
  std::vector<std::string> names;
  std::int64_t records = 10'000;  // in each file
  std::int64_t classes = 10;
  std::int64_t coarse_classes = 0;  // CIFAR-100: classes of the second label byte, which precedes that of the fine class
};

/// Throws DataError for a file of another size or a label out of range.
Images read_cifar(const std::filesystem::path& root, const CifarFiles& files);

}  // namespace paceline::data
