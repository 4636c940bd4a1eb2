#include "paceline/step/finite_tensors.h"

#include <ATen/ATen.h>

#include <cmath>

#include "paceline/base/finite.h"

namespace paceline::step {

bool all_finite(const at::Tensor& values) {
  if (!values.device().is_cpu()) return finite_on_device(values).item<bool>();
  return paceline::all_finite(values.data_ptr<float>(), values.numel());
}

at::Tensor finite_on_device(const at::Tensor& values) { return at::linalg_vector_norm(values, INFINITY).lt(INFINITY); }

}  // namespace paceline::step
