#include "paceline/comm/step_runner.h"

#include <cstring>

#include "paceline/base/error.h"
#include "paceline/comm/reduce.h"
#include "paceline/schedule/held.h"

namespace paceline::comm {
namespace {

using schedule::Range;
using schedule::Step;
using StepKind = Step::Kind;

}  // namespace

StepRunner::StepRunner(Transport& transport, Scratch& scratch, schedule::Steps steps, const Operation& operation, Tag tag, int divisor,
                       int base, int stride)
    : transport_(transport),
      scratch_(scratch),
      steps_(std::move(steps)),
      op_(operation),
      tag_(tag),
      divisor_(divisor),
      base_(base),
      stride_(stride) {}

bool StepRunner::advance() {
  while (true) {
    if (!in_flight_) {
      if (next_ == steps_.size()) {
        if (divisor_ != 1) divide(op_.buffer.dtype, op_.buffer.data, op_.buffer.count, divisor_);
        return true;
      }
      post_round();
    }
    bool all = true;
    for (Message& message : round_) {
      if (!message.done) message.done = message.request->test();
      all = all && message.done;
    }
    if (!all) return false;
    end_round();
  }
}

int StepRunner::waits_for() const {
  // A receive says more about which rank is late than a send does.
  int sending_to = -1;
  for (const Message& message : round_) {
    if (message.done) continue;
    if (message.step->kind == StepKind::receive || message.step->kind == StepKind::reduce) return name_of_peer(*message.step);
    sending_to = name_of_peer(*message.step);
  }
  return sending_to;
}

void StepRunner::post_round() {
  const std::span<const Step> steps = schedule::first_round(std::span(steps_).subspan(next_));
  const std::vector<bool> is_held = schedule::held(steps);
  const std::int64_t width = size_of(op_.buffer.dtype);
  next_ += steps.size();
  round_.clear();
  round_.reserve(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const std::int64_t bytes = step.range.size() * width;
    std::byte* own = static_cast<std::byte*>(op_.buffer.data) + step.range.begin * width;
    Message message{.step = &step, .held = {}, .request = nullptr};
    switch (step.kind) {
      case StepKind::copy: copy_own(step.range); continue;
      case StepKind::collect:
      case StepKind::sum: throw InternalError("short sums are lowered, not sent");
      case StepKind::send: message.request = transport_.send(name_of_peer(step), tag_, own, bytes); break;
      case StepKind::give:
        message.request =
            transport_.send(name_of_peer(step), tag_, static_cast<const std::byte*>(op_.input.data) + step.range.begin * width, bytes);
        break;
      case StepKind::receive: message.request = transport_.receive(name_of_peer(step), tag_, own, bytes, {}); break;
      case StepKind::reduce:
        if (is_held[i]) {
          message.held = scratch_.take(bytes);
          message.request = transport_.receive(name_of_peer(step), tag_, message.held.get(), bytes, {});
        } else {
          message.request =
              transport_.receive(name_of_peer(step), tag_, own, bytes, {.reduces = true, .dtype = op_.buffer.dtype, .op = op_.op});
        }
        break;
    }
    round_.push_back(std::move(message));
  }
  in_flight_ = true;
}

void StepRunner::end_round() {
  const std::int64_t width = size_of(op_.buffer.dtype);
  for (const Message& message : round_) {
    const Step& step = *message.step;
    if (message.held)
      combine(op_.buffer.dtype, op_.op, static_cast<std::byte*>(op_.buffer.data) + step.range.begin * width, message.held.get(),
              step.range.size());
  }
  round_.clear();
  in_flight_ = false;
}

void StepRunner::copy_own(Range range) {
  if (range.size() == 0) return;
  const std::int64_t width = size_of(op_.buffer.dtype);
  std::memcpy(static_cast<std::byte*>(op_.buffer.data) + range.begin * width,
              static_cast<const std::byte*>(op_.input.data) + range.begin * width, static_cast<std::size_t>(range.size() * width));
}

}  // namespace paceline::comm
