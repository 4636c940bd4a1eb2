// Exchanges of compressed gradients: codes that workers decode and encode again, codes that all get whole, and numbers that are averaged.
#pragma once

#include "paceline/data_parallel/exchange.h"

namespace paceline::data_parallel {

/// ConfigError if compressors cannot work on the arena's gradients.
void check_compressible(const ExchangeSetup& setup);
/// What `setup.compression` says, among several workers.
std::unique_ptr<Exchange> make_compressed(const ExchangeSetup& setup);

}  // namespace paceline::data_parallel
