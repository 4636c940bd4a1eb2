// Whether gradients and parameters can be used: one NaN or infinity spoils whatever it is added to.
#pragma once

#include <ATen/core/Tensor.h>

namespace paceline::step {

/// Whether all values are finite. Waits for the device that they lie on.
bool all_finite(const at::Tensor& values);
/// The same as a bool on the device, without waiting: one pass over the values.
at::Tensor finite_on_device(const at::Tensor& values);

}  // namespace paceline::step
