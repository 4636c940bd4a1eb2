// Tests whether gradients and parameters are finite: a single NaN or infinity contaminates every sum that it enters.
#pragma once

#include <ATen/core/Tensor.h>

namespace paceline::step {

/// Whether all values are finite, in any floating-point type and layout. Waits for their device.
bool all_finite(const at::Tensor& values);
/// The same as a bool on the device, without waiting: one pass over the values.
at::Tensor finite_on_device(const at::Tensor& values);

}  // namespace paceline::step
