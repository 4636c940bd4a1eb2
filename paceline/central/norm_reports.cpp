#include "paceline/central/norm_reports.h"

#include <ATen/ATen.h>

namespace paceline::central {

NormReports::NormReports(nn::Model& module) : values_(module.statistics().parameters()), initial_(values_.clone()) {
  momentum_ = at::ones_like(values_);
  for (std::size_t entry = 0; entry < module.statistics().entries().size(); ++entry)
    module.statistics().view(momentum_, entry).fill_(module.statistics_momentum(entry));
  others_ = momentum_.eq(0), averaged_ = momentum_.gt(0);
}

void NormReports::before_pass() { at::Tensor(values_).masked_fill_(averaged_, 0); }

// Selects instead of multiplying by zero, which a NaN or an infinity would survive; on the device, so that no thread waits for a GPU.
void NormReports::after_pass(at::Tensor& batch, at::Tensor& running, std::int64_t micro_batches) {
  if (micro_batches != micro_batches_) {
    micro_batches_ = micro_batches;
    kept_ = at::pow(1 - momentum_, static_cast<double>(micro_batches)), fresh_ = (1 - kept_).masked_fill_(others_, 1);
  }
  const at::Tensor takes = at::isfinite(values_).logical_or_(others_).all().logical_or(others_);
  batch.copy_(at::where(takes, values_ / fresh_, batch));
  running.copy_(at::where(takes, at::where(others_, values_, running * kept_ + values_), running));
}

}  // namespace paceline::central
