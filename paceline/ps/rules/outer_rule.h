// What the rules of outer.h have in common: they make the whole update, of the steps that workers push.
#pragma once

#include "paceline/ps/config.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {

class OuterRule : public UpdateRule {
 public:
  OuterRule(const PsConfig& config, double usual_rate)
      : rate_(config.outer_rate > 0 ? config.outer_rate : usual_rate), momentum_(config.outer_momentum), period_(config.period) {}

  std::string why_not_gradients() const override { return "makes its outer step with the steps of workers' own optimizers"; }
  bool adjusts() const override { return true; }
  std::int64_t period() const override { return period_; }

 protected:
  float rate() const { return static_cast<float>(rate_); }          // η
  float momentum() const { return static_cast<float>(momentum_); }  // μ

 private:
  double rate_, momentum_;
  std::int64_t period_;
};

inline constexpr double kOuterRate = 0.7, kOuterAdamRate = 0.005;

}  // namespace paceline::ps
