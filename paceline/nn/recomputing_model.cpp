#include "paceline/nn/recomputing_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::nn {
namespace {

at::Generator generator_of(const Model& model) { return at::globalContext().defaultGenerator(model.device()); }

/// For its scope, LibTorch's generator has the saved `state`; undefined: nothing is drawn from it.
class ChanceAgain {
 public:
  ChanceAgain(const Model& model, const at::Tensor& state) {
    if (!state.defined()) return;
    generator_ = generator_of(model);
    const std::lock_guard lock(generator_.mutex());
    now_ = generator_.get_state();
    generator_.set_state(state);
  }
  ~ChanceAgain() {
    if (!now_.defined()) return;
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(now_);
  }
  ChanceAgain(const ChanceAgain&) = delete;
  ChanceAgain& operator=(const ChanceAgain&) = delete;

 private:
  at::Generator generator_;
  at::Tensor now_;
};

}  // namespace

Recompute parse_recompute(const std::string& text) {
  if (text == "none") return Recompute::none;
  if (text == "units") return Recompute::units;
  if (text == "all") return Recompute::all;
  throw ConfigError(fmt::format("unknown train.recompute={}; expected none, units or all", text));
}

void RecomputingModel::keep(Units segment, const Tensors& inputs, const Pass& pass, Trace& trace) const {
  Trace::Kept& kept = trace.kept.at(segment.first);
  kept = {.inputs = inputs, .last = segment.last};
  if (pass.masks || !pass.training || !uses_chance()) return;  // masks are reseeded
  at::Generator generator = generator_of(*this);
  const std::lock_guard lock(generator.mutex());
  kept.chance = generator.get_state();
}

/// Keeps the input of each unit; if the backward pass follows at once, everything of the last unit is kept.
Tensors RecomputingModel::run_units(Units range, Tensors inputs, const Pass& pass, Trace& trace, bool goes_back_at_once) {
  for (std::size_t unit = range.first; unit < range.last; ++unit) {
    const Units one{unit, unit + 1};
    if (goes_back_at_once && one.last == range.last) {
      trace.kept[unit] = {.last = one.last, .complete = true};
      return inner_->run(one, std::move(inputs), pass, &trace);
    }
    keep(one, inputs, pass, trace);
    inputs = inner_->run(one, std::move(inputs), pass, nullptr);
  }
  return inputs;
}

std::vector<Units> RecomputingModel::segments_of(Units range) const {
  const auto length = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(range.last - range.first))));
  std::vector<Units> segments;
  for (std::size_t first = range.first; first < range.last; first += length)
    segments.push_back({first, std::min(first + length, range.last)});
  return segments;
}

Tensors RecomputingModel::run(Units range, Tensors inputs, const Pass& pass, Trace* trace) {
  if (!trace) return inner_->run(range, std::move(inputs), pass, nullptr);
  trace->begin(trace->saved.size(), units().size(), range);
  trace->kept.resize(units().size());
  if (what_ == Recompute::units) return run_units(range, std::move(inputs), pass, *trace, range.last == units().size());
  for (const Units& segment : segments_of(range)) {
    keep(segment, inputs, pass, *trace);
    inputs = inner_->run(segment, std::move(inputs), pass, nullptr);
  }
  return inputs;
}

/// Recomputes the segment with that unit, and keeps the input of each of its units.
void RecomputingModel::open_segment(std::size_t unit, const Pass& pass, Trace& trace) {
  std::size_t first = unit;
  while (trace.kept[first].inputs.empty()) --first;
  Trace::Kept kept = std::exchange(trace.kept[first], {});
  const ChanceAgain chance(*this, kept.chance);
  Pass again = pass;
  again.again = true;
  run_units({first, kept.last}, std::move(kept.inputs), again, trace, unit + 1 == kept.last);
}

Tensors RecomputingModel::back_unit(std::size_t unit, Tensors gradients, const Pass& pass, Trace& trace, const Wanted& wanted,
                                    const GradientReady& ready) {
  const Units one{unit, unit + 1};
  Pass quiet = pass;  // the backward pass's hooks enclose the second forward pass
  quiet.hooks = nullptr;
  pass.call(&UnitHooks::before_backward, unit);
  Trace::Kept kept = std::exchange(trace.kept[unit], {});
  if (!kept.complete) {
    const ChanceAgain chance(*this, kept.chance);
    Pass again = quiet;
    again.again = true;
    inner_->run(one, std::move(kept.inputs), again, &trace);
  }
  trace.forward[unit] = true;
  Tensors inputs = inner_->back(one, std::move(gradients), quiet, trace, wanted, ready);
  pass.call(&UnitHooks::after_backward, unit);
  return inputs;
}

Tensors RecomputingModel::back(Units range, Tensors gradients, const Pass& pass, Trace& trace, const Wanted& wanted,
                               const GradientReady& ready) {
  trace.use_up(range);
  for (std::size_t unit = range.last; unit-- > range.first;) {
    const Trace::Kept& kept = trace.kept[unit];
    if (!kept.complete && (kept.inputs.empty() || kept.last > unit + 1)) open_segment(unit, pass, trace);
    gradients = back_unit(unit, std::move(gradients), pass, trace,
                          {.inputs = wanted.inputs || unit > range.first, .weights = wanted.weights}, ready);
  }
  return gradients;
}

// Hooks are called for the same units in the same order as on a rank with samples: units that are recomputed go forward
// once more.
void RecomputingModel::sit_out_back(Units range, const Pass& pass, const GradientReady& ready) {
  if (what_ == Recompute::units) return inner_->sit_out_back(range, pass, ready);
  std::vector<Units> segments = segments_of(range);
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    for (std::size_t unit = segment->first; unit < segment->last && segment->last > segment->first + 1; ++unit) {
      pass.call(&UnitHooks::before_forward, unit);
      pass.call(&UnitHooks::after_forward, unit);
    }
    inner_->sit_out_back(*segment, pass, ready);
  }
}

std::shared_ptr<Model> recomputing(std::shared_ptr<Model> model, Recompute what) {
  if (what == Recompute::none) return model;
  if (model->units().size() == 1)
    throw ConfigError(
        "train.recompute recomputes a model unit by unit, but this model is a single unit, so nothing would be saved; leave it out, or "
        "list the module's blocks (nn::ModuleModel)");
  return std::make_shared<RecomputingModel>(std::move(model), what);
}

}  // namespace paceline::nn
