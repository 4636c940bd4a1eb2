#include "paceline/central/norm_reports.h"

#include <ATen/ATen.h>

namespace paceline::central {

NormReports::NormReports(nn::GraphModule& module) : values_(module.statistics().parameters()), initial_(values_.clone()) {
  momentum_ = at::ones_like(values_);
  std::size_t entry = 0;
  for (const graph::Parameter& parameter : module.graph().parameters()) {
    if (parameter.trainable) continue;
    const double momentum = module.graph().layers()[static_cast<std::size_t>(parameter.layer)].momentum;
    module.statistics().view(momentum_, entry++).fill_(momentum);
  }
}

void NormReports::after_pass(at::Tensor& batch, at::Tensor& running, std::int64_t micro_batches) {
  if (micro_batches != micro_batches_) {
    micro_batches_ = micro_batches;
    kept_ = at::pow(1 - momentum_, static_cast<double>(micro_batches)), fresh_ = 1 - kept_;
  }
  at::div_out(batch, values_, fresh_);
  running.mul_(kept_).add_(values_);
}

}  // namespace paceline::central
