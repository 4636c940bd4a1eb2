// The feed of a dataset that is entirely on the GPU: an epoch's augmentation plans are uploaded once, and a batch is one kernel.
#pragma once

#include "paceline/train/feed.h"

namespace paceline::train {

/// Null if that is not possible: no GPU, no pixels in memory, too large, or residency "host". The set has at most kMostChannels.
std::unique_ptr<Feed> make_resident_feed(const data::Dataset& dataset, const data::LoaderOptions& options, const std::string& residency,
                                         const nn::Model& module);

}  // namespace paceline::train
