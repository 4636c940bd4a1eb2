// What must be known of oneDNN, through which LibTorch's convolutions and products of 16-bit matrices go on most CPUs, to predict memory.
#pragma once

namespace paceline::nn {

/// Channels that they take at a time; 0 if LibTorch's convolutions on this CPU are its own.
int onednn_block();

/// Bytes per element that each thread of a product of bf16 matrices on this CPU holds on top of the result: 4 where the CPU has no
/// instructions for bf16 and oneDNN adds in fp32 beside it. Found by a trial, once.
int product_sums();

}  // namespace paceline::nn
