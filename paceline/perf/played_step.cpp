#include "paceline/perf/played_step.h"

#include <algorithm>
#include <cmath>

#include "paceline/perf/prices.h"

namespace paceline::perf {
namespace {

using Axis = schedule::Action::Axis;

constexpr double kRounding = 1e-10;  // share of a step: rounds that differ by less count as equal

std::vector<double*> numbers_of(PlayedStep& step) {
  std::vector<double*> numbers = {&step.seconds};
  const auto add = [&](ByAxis& values) {
    for (double& value : values.of) numbers.push_back(&value);
  };
  for (StageCost& stage : step.stages) {
    Split& split = stage.split;
    numbers.insert(numbers.end(), {&split.compute, &split.optimizer, &split.encoding, &split.bubble, &split.straggling});
    add(split.exposed), add(stage.communication), add(stage.bytes);
  }
  for (double& seconds : step.busy) numbers.push_back(&seconds);
  add(step.doubt.seconds), add(step.doubt.error_s);
  for (auto& [note, seconds] : step.doubt.outside) numbers.push_back(&seconds);
  return numbers;
}

/// Extrapolates by this many rounds from three steps, each of which has one more round than the previous one. Returns false if the pipeline
/// has not settled: the two differences are not equal up to rounding, or a stage computes longer in a round than the step grows by.
bool continue_by(double rounds, PlayedStep& first, PlayedStep& second, PlayedStep& third) {
  const std::vector<double*> a = numbers_of(first), b = numbers_of(second), c = numbers_of(third);
  if (a.size() != c.size() || b.size() != c.size()) return false;
  for (std::size_t i = 0; i < c.size(); ++i) {
    const double before = *b[i] - *a[i], round = *c[i] - *b[i];
    if (std::abs(round - before) > kRounding * std::max(third.seconds, std::abs(*c[i]))) return false;
  }
  for (std::size_t stage = 0; stage < third.busy.size(); ++stage)
    if (third.busy[stage] - second.busy[stage] > third.seconds - second.seconds + kRounding * third.seconds) return false;
  for (std::size_t i = 0; i < c.size(); ++i) *c[i] += rounds * (*c[i] - *b[i]);
  return true;
}

}  // namespace

void TalkDoubt::add(Axis axis, const Price& price) {
  seconds[axis] += price.seconds, error_s[axis] += price.doubt * price.seconds;
  if (!price.outside.empty()) outside[price.outside] += price.seconds;
}

void TalkDoubt::add(const TalkDoubt& other) {
  for (const Axis axis : kAxesOfPrograms) seconds[axis] += other.seconds[axis], error_s[axis] += other.error_s[axis];
  for (const auto& [note, spent] : other.outside) outside[note] += spent;
}

double TalkDoubt::error(const ByAxis& exposed) const {
  double sum = 0;
  for (const Axis axis : kAxesOfPrograms)
    if (seconds[axis] > 0) sum += error_s[axis] / seconds[axis] * exposed[axis];
  return sum;
}

std::vector<std::string> TalkDoubt::notes() const {
  constexpr double kMuch = 0.1;
  double all = 0;
  for (const auto& [note, spent] : outside) all += spent;
  if (all <= kMuch * seconds.sum()) return {};
  return {std::string(std::ranges::max_element(outside, {}, [](const auto& each) { return each.second; })->first)};
}

std::optional<PlayedStep> play_longer(const std::function<PlayedStep(std::int64_t micro_batches)>& play, std::int64_t micro_batches,
                                      std::int64_t round) {
  const auto pays = [&] { return (2 + 3 + 4) * round < micro_batches; };
  if (!pays()) return std::nullopt;
  for (PlayedStep first = play(2 * round); pays(); round *= 2) {
    PlayedStep second = play(3 * round), third = play(4 * round);
    const double rounds = static_cast<double>(micro_batches - 4 * round) / static_cast<double>(round);
    if (continue_by(rounds, first, second, third)) return third;
    first = std::move(third);  // it contains two of the next rounds
  }
  return std::nullopt;
}

}  // namespace paceline::perf
