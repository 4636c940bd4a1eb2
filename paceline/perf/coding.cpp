#include "paceline/perf/coding.h"

#include <algorithm>
#include <iterator>

namespace paceline::perf {
namespace {

/// Encoding and decoding speeds as shares of a copy's, measured by `paceline bench compress`: the table of docs/results/compressors.md
/// (tests/docs_test.py). They are not a column of the compressors' registry, which knows nothing of performance models.
struct CodingShare {
  std::string_view key;
  double encode, decode;
};
constexpr double kCopy = 19.5;
constexpr CodingShare kCoding[] = {
    {"fp16", 6.2 / kCopy, 4.4 / kCopy},      {"bf16", 12.1 / kCopy, 6.8 / kCopy},      {"int8", 4.3 / kCopy, 16.6 / kCopy},
    {"dynamic8", 2.7 / kCopy, 10.4 / kCopy}, {"onebit", 6.8 / kCopy, 18.0 / kCopy},    {"ternary", 3.0 / kCopy, 12.0 / kCopy},
    {"sign", 5.3 / kCopy, 18.1 / kCopy},     {"threshold", 6.9 / kCopy, 31.2 / kCopy}, {"topk", 4.4 / kCopy, 31.0 / kCopy},
    {"dgc", 4.4 / kCopy, 31.1 / kCopy},      {"powersgd", 6.9 / kCopy, 8.7 / kCopy},
};

constexpr CodingShare kSlowest = {"", 2.7 / kCopy, 4.4 / kCopy};  // used for a compressor that was not measured

double coding_seconds(const std::string& compression, double elements, double memory_bytes_per_s, double CodingShare::*share) {
  const auto* const found = std::ranges::find(kCoding, compression, &CodingShare::key);
  const CodingShare& row = found == std::end(kCoding) ? kSlowest : *found;
  return 4 * elements / (row.*share * memory_bytes_per_s / 2);  // a copy reads and writes
}

}  // namespace

double encode_seconds(const std::string& compression, double elements, double memory_bytes_per_s) {
  return coding_seconds(compression, elements, memory_bytes_per_s, &CodingShare::encode);
}
double decode_seconds(const std::string& compression, double elements, double memory_bytes_per_s) {
  return coding_seconds(compression, elements, memory_bytes_per_s, &CodingShare::decode);
}

}  // namespace paceline::perf
