// Gradients that travel in bf16 and are added in fp32 (comm.gradient_dtype=bf16).
//
// Every worker rounds its gradients once and sends each part of a bucket to the part's owner, who adds what arrives in fp32, in the order
// of the ranks: the sums have the same bits whoever owns them, and by every engine. A part that stays with its owner is not rounded again;
// a mean that all workers need is, once, on its way back.
#pragma once

#include "paceline/data_parallel/exchange.h"

namespace paceline::data_parallel {

/// Among several workers.
std::unique_ptr<Exchange> make_rounded(const ExchangeSetup& setup);

}  // namespace paceline::data_parallel
