#include "paceline/central/norm_reports.h"

#include <ATen/ATen.h>

namespace paceline::central {

NormReports::NormReports(nn::Model& module) : values_(module.statistics().parameters()), initial_(values_.clone()) {
  momentum_ = at::ones_like(values_);
  for (std::size_t entry = 0; entry < module.statistics().entries().size(); ++entry)
    module.statistics().view(momentum_, entry).fill_(module.statistics_momentum(entry));
  if (momentum_.eq(0).any().item<bool>()) others_ = momentum_.eq(0);
}

void NormReports::before_pass() {
  if (others_.defined()) at::Tensor(values_).mul_(others_);
  else at::Tensor(values_).zero_();
}

void NormReports::after_pass(at::Tensor& batch, at::Tensor& running, std::int64_t micro_batches) {
  if (micro_batches != micro_batches_) {
    micro_batches_ = micro_batches;
    kept_ = at::pow(1 - momentum_, static_cast<double>(micro_batches)), fresh_ = 1 - kept_;
    if (others_.defined()) kept_.masked_fill_(others_, 0), fresh_.masked_fill_(others_, 1);
  }
  at::div_out(batch, values_, fresh_);
  running.mul_(kept_).add_(values_);
}

}  // namespace paceline::central
