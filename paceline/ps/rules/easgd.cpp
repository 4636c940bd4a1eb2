// Elastic averaging over a server (Zhang, Choromanska, LeCun 2015; DeepSpark): every `period` steps a worker pushes its replica x, and
// replica and centre attract each other:  e = α (x − x̃);  x ← x − e;  x̃ ← x̃ + e.
#include "paceline/ps/config.h"
#include "paceline/ps/rule.h"

namespace paceline::ps {
namespace {

class Easgd final : public UpdateRule {
 public:
  Easgd(double alpha, std::int64_t period) : alpha_(static_cast<float>(alpha)), period_(period) {}

  Needs needs() const override { return {.whole_update = true, .replica = true}; }
  std::string why_not_steps() const override { return "has its workers' optimizers on the workers anyway and exchanges parameters"; }
  bool adjusts() const override { return true; }
  void adjust(const Slice& s, const Arrival&) override { for_each(s.place, s.count, ElasticStep{s.parameters, s.out, alpha_}); }
  std::int64_t period() const override { return period_; }

 private:
  float alpha_;
  std::int64_t period_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_easgd(const RuleSetup& setup) {
  const PsConfig& config = setup.config;
  return std::make_unique<Easgd>(config.elasticity > 0 ? config.elasticity : 0.9 / setup.workers, config.period);
}

}  // namespace paceline::ps
