// LC-ASGD (Li, He, Ren, Mao 2020): ASGD whose gradient is that of the loss plus λ times the loss that the server predicts for the steps
// which the gradient will miss. What that gradient is depends on how the formula is read (readings.h); each reading multiplies ∇ℓ by a
// number, which the server tells the worker when it reports its loss (loss_compensation.h) and which comes back with the push.
#include "paceline/ps/rules/all.h"

namespace paceline::ps {

std::unique_ptr<UpdateRule> make_lc_asgd(const PsConfig&, const optim::OptimConfig&, int) { return std::make_unique<UpdateRule>(); }

}  // namespace paceline::ps
