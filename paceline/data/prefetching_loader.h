// A loader that prepares batches ahead in background threads.
#pragma once

#include <memory>

#include "paceline/data/loader.h"

namespace paceline::data {

/// Prepares batches ahead in `threads` background threads (0: like make_loader); the order and the bits are those of make_loader. An
/// exception in a thread is rethrown by the next() that would have returned its batch.
std::unique_ptr<BatchSource> make_prefetching_loader(const Dataset& dataset, const LoaderOptions& options, int threads, int ahead);

}  // namespace paceline::data
