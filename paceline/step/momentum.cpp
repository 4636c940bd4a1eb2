#include "paceline/step/momentum.h"

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/compress/compressor.h"

namespace paceline::step {

bool corrects_momentum(const std::string& compression) {
  return compression != "none" && find(compress::compressors(), "compression", compression).make.momentum_correction;
}

optim::OptimConfig optimizer_behind(const std::string& compression, optim::OptimConfig optim) {
  if (!corrects_momentum(compression)) return optim;
  if (!optim::optimizer_kind(optim.name).heavy_ball || optim.nesterov)
    throw ConfigError(
        fmt::format("comm.compression={} carries the momentum of optim.name=sgd itself; set that, without nesterov", compression));
  optim.momentum = 0;  // the workers apply it
  return optim;
}

}  // namespace paceline::step
