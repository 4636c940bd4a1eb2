// How long compressors take to encode and decode.
#pragma once

#include <string>

namespace paceline::perf {

/// Seconds of a compressor for this many fp32 elements, from the bandwidth of the memory. A compressor that was not measured counts as the
/// slowest.
double encode_seconds(const std::string& compression, double elements, double memory_bytes_per_s);
double decode_seconds(const std::string& compression, double elements, double memory_bytes_per_s);

}  // namespace paceline::perf
