// Exchanges of compressed gradients: codes that workers average slice by slice, codes that all workers receive in full, and numbers that
// can be averaged directly.
#pragma once

#include "paceline/data_parallel/exchange.h"

namespace paceline::data_parallel {

/// ConfigError if compressors do not support the arena's gradients.
void check_compressible(const ExchangeSetup& setup);
/// The exchange for `setup.compression`, with several workers.
std::unique_ptr<Exchange> make_compressed(const ExchangeSetup& setup);

}  // namespace paceline::data_parallel
