// Gradients that are sent in bf16 and added in fp32 (comm.gradient_dtype=bf16).
//
// Every worker rounds its gradients once and sends each part of a bucket to the part's owner, which adds the parts in fp32, in rank order:
// the sums have the same bits for any owner and any engine. A part that stays with its owner is not rounded again; a mean that all workers
// need is rounded once more, for the way back.
#pragma once

#include "paceline/data_parallel/exchange.h"

namespace paceline::data_parallel {

/// For several workers.
std::unique_ptr<Exchange> make_rounded(const ExchangeSetup& setup);

}  // namespace paceline::data_parallel
