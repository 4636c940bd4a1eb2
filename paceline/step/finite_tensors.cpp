#include "paceline/step/finite_tensors.h"

#include <ATen/ATen.h>

#include <cmath>

#include "paceline/base/finite.h"

namespace paceline::step {

bool all_finite(const at::Tensor& values) {
  if (values.numel() == 0) return true;
  if (!values.device().is_cpu()) return finite_on_device(values).item<bool>();
  if (values.scalar_type() == at::kFloat && values.is_contiguous()) return paceline::all_finite(values.data_ptr<float>(), values.numel());
  return at::isfinite(values).all().item<bool>();
}

at::Tensor finite_on_device(const at::Tensor& values) { return at::linalg_vector_norm(values, INFINITY).lt(INFINITY); }

}  // namespace paceline::step
