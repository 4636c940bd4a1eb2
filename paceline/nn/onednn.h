// What must be known of oneDNN's convolutions, through which LibTorch's go on most CPUs, to predict their memory.
#pragma once

namespace paceline::nn {

/// Channels that they take at a time; 0 if LibTorch's convolutions on this CPU are its own.
int onednn_block();

}  // namespace paceline::nn
