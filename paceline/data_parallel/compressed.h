// Exchanges of compressed gradients: codes that workers decode and encode again, codes that all get whole, and numbers that are averaged.
#pragma once

#include "paceline/data_parallel/exchange.h"

namespace paceline::data_parallel {

/// What `context.compression` says, among several workers.
std::unique_ptr<Exchange> make_compressed(const step::Context& context);

}  // namespace paceline::data_parallel
