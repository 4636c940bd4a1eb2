// Lower bounds of a step's seconds. The search examines choices with low bounds first, and skips those that cannot be among the best.
#include <algorithm>

#include "paceline/perf/plan_costs.h"
#include "paceline/perf/plan_space.h"
#include "paceline/schedule/pipeline.h"

namespace paceline::perf {

using schedule::Action;

namespace {
constexpr std::int64_t kLong = 1 << 26;  // elements of a message
}

double PlanCosts::seconds_of(const Choice& choice, Action::Work work, int first, int last, std::int64_t samples) const {
  const Action action{.kind = Action::Kind::compute, .work = work, .first = first, .last = last};
  return times_of(choice).seconds(action, samples);
}

double PlanCosts::pass_seconds(const Choice& choice, std::int64_t samples, bool recomputes) const {
  return seconds_of(choice, Action::Work::forward, 0, units_, samples) * (recomputes ? 2 : 1) +
         seconds_of(choice, Action::Work::backward, 0, units_, samples);
}

double PlanCosts::tensor_seconds(const Choice& choice, int first, int last, std::int64_t samples) const {
  if (choice.program.tensor == 1) return 0;
  const ComputeTimes& times = times_of(choice);
  std::vector<double>& sums = exchanges_[{choice.program.tensor, choice.sequence, samples}];
  if (sums.empty()) {
    sums.push_back(0);
    for (const schedule::ProgramModel::Unit& unit : model_of(choice).units) {
      double seconds = sums.back();
      for (const auto* meetings : {&unit.forward, &unit.backward})
        for (const auto& meeting : *meetings) {
          if (meeting.axis != Action::Axis::tensor) continue;
          Action action{.kind = Action::Kind::communicate, .exchange = meeting.exchange, .axis = meeting.axis};
          action.elements = meeting.elements * samples + meeting.fixed;
          action.element_bytes = static_cast<double>(choice.program.activation_bytes);
          seconds += model().collective_seconds(action, choice.program);
        }
      sums.push_back(seconds);
    }
  }
  Action pass{.kind = Action::Kind::compute, .work = Action::Work::forward, .first = first, .last = last};
  double idle = times.idle_seconds(pass, samples);
  pass.work = Action::Work::backward;
  idle += times.idle_seconds(pass, samples);
  return std::max(0.0, sums[static_cast<std::size_t>(last)] - sums[static_cast<std::size_t>(first)] - idle);
}

// A part of the parameters takes at least its share of the time of all parameters in one piece, which is computed once for all stages. In
// pieces of kLong elements, latency is negligible.
double PlanCosts::closing_seconds(const Choice& choice, const std::vector<int>& held) const {
  const schedule::ProgramSettings& program = choice.program;
  if (program.data == 1) return 0;
  const auto& units = model_of(choice).units;
  const auto elements_of = [&](int first, int last) {
    std::int64_t elements = 0;
    for (int unit = first; unit < last; ++unit) {
      const auto& of = units[static_cast<std::size_t>(unit)];
      elements += of.parameters() - of.private_parameters();
    }
    return elements;
  };
  const auto [found, missing] =
      closings_.try_emplace({program.data, program.pipeline, program.tensor, program.zero, static_cast<int>(program.compressed),
                             program.wire_bytes, choice.compression, choice.hybrid, choice.moments.value_or(question_.moments)});
  auto& [all, seconds] = found->second;
  if (missing) {
    all = std::clamp<std::int64_t>(elements_of(0, units_), 1, kLong);
    schedule::ProgramSettings closing = program;
    closing.pipeline = closing.tensor = closing.chunks = 1, closing.samples = closing.micro_batches = 1;
    closing.stages.clear(), closing.recompute = "none", closing.bucket_bytes = 0;
    const schedule::ProgramModel one{.units = {{.tensors = {{.elements = all}}}}};
    const std::vector<schedule::Program> programs = strategy_of(choice).programs(one, closing);
    for (const Action& action : programs.front()) {
      if (action.lane == Action::Lane::gather) continue;  // of parameters, for the passes
      if (action.kind == Action::Kind::communicate) seconds += model().collective_seconds(action, program);
      else if (action.work >= Action::Work::update) seconds += times_of(choice).seconds(action, 1);
    }
  }
  std::int64_t elements = 0;
  for (std::size_t i = 0; i + 1 < held.size(); i += 2) elements += elements_of(held[i], held[i + 1]);
  return seconds * static_cast<double>(elements) / static_cast<double>(all);
}

double PlanCosts::bound(const Choice& choice) const {
  const schedule::ProgramSettings& program = choice.program;
  const std::int64_t samples = std::max<std::int64_t>(program.samples / program.micro_batches, 1);
  const bool pipeline = program.pipeline > 1;
  const double pass =
      (pass_seconds(choice, samples, program.recompute != "none") + tensor_seconds(choice, 0, units_, samples)) / program.pipeline;
  double idle = 0;
  if (pipeline) {
    const auto& schedule = find(schedule::pipelines(), "parallel.schedule", program.schedule).make;
    // Half of the idle time of equal stages: uneven ones may idle less on average.
    idle = 0.5 * schedule.idle({program.pipeline, static_cast<int>(program.micro_batches), program.chunks}, {pass / 3, pass / 3, pass / 3});
  } else {
    const double back = pass - seconds_of(choice, Action::Work::forward, 0, units_, samples);
    idle = std::max(0.0, closing_seconds(choice, {0, units_}) - back);
  }
  return (static_cast<double>(program.micro_batches) * pass + idle) * correction(choice);
}

double PlanCosts::bound(const Plan& fitted) const {
  const schedule::ProgramSettings& program = fitted.choice.program;
  const std::int64_t samples = std::max<std::int64_t>(program.samples / program.micro_batches, 1);
  const bool puts_off = puts_off_weights(program);
  const auto count = static_cast<double>(program.micro_batches);
  double least = 0, there = 0, back = 0;  // there: the first micro-batch's way to a rank; back: that of the last one's gradients from it
  for (const std::vector<int>& held : program.stages) {
    double pass = 0, late = 0, forth = 0;  // late: the part of it for which the previous stage need not wait
    for (std::size_t i = 0; i + 1 < held.size(); i += 2) {
      const auto of = [&](Action::Work work) { return seconds_of(fitted.choice, work, held[i], held[i + 1], samples); };
      const double forward = of(Action::Work::forward), backward = of(Action::Work::backward);
      pass += forward * (program.recompute == "none" ? 1 : 2) + backward + tensor_seconds(fitted.choice, held[i], held[i + 1], samples);
      forth += forward;
      if (puts_off) late += backward - of(Action::Work::input_gradients);
    }
    least = std::max({least, there + count * pass, there + count * (pass - late) + back});
    // Gradients are complete in the last micro-batch's backward pass; with several chunks, some are complete earlier.
    if (program.chunks == 1) least = std::max(least, there + count * pass - (pass - forth) + closing_seconds(fitted.choice, held));
    const auto first = [&](Action::Work work) { return seconds_of(fitted.choice, work, held[0], held[1], samples); };
    there += first(Action::Work::forward);
    back += first(puts_off ? Action::Work::input_gradients : Action::Work::backward);
  }
  return least * correction(fitted.choice);
}

}  // namespace paceline::perf
