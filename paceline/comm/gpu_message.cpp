#include "paceline/comm/gpu_message.h"

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::comm {
namespace {

constexpr Tag kAnswers = Tag{1} << 40;  // beside the tags of messages and of collectives

}  // namespace

GpuMessage::GpuMessage(Transport& transport, const Operation& operation) : transport_(transport), op_(operation) {
  if (op_.kind == Operation::Kind::send) mark_.record(op_.buffer.stream);
}

bool GpuMessage::advance() { return op_.kind == Operation::Kind::send ? advance_send() : advance_receive(); }

bool GpuMessage::advance_send() {
  const auto tag = static_cast<Tag>(op_.tag);
  if (!tells_) {
    mark_.wait();
    place_ = {op_.buffer.data, op_.buffer.bytes()};
    tells_ = transport_.send(op_.peer, tag, &place_, sizeof(place_));
  }
  if (!answers_) {
    if (!tells_->test()) return false;
    answers_ = transport_.receive(op_.peer, kAnswers + tag, &answer_, sizeof(answer_), {});
  }
  return answers_->test();
}

bool GpuMessage::advance_receive() {
  const auto tag = static_cast<Tag>(op_.tag);
  if (!tells_) tells_ = transport_.receive(op_.peer, tag, &place_, sizeof(place_), {});
  if (!answers_) {
    if (!tells_->test()) return false;
    copy();
    answers_ = transport_.send(op_.peer, kAnswers + tag, &answer_, sizeof(answer_));
  }
  return answers_->test();
}

void GpuMessage::copy() {
  if (place_.bytes != op_.buffer.bytes())
    throw PeerError(op_.peer, "receive", 0,
                    fmt::format("rank {} sent {} bytes where this rank receives {} bytes", op_.peer, place_.bytes, op_.buffer.bytes()));
  gpu::copy(op_.buffer.data, place_.data, place_.bytes, op_.buffer.stream);
  mark_.record(op_.buffer.stream);
  mark_.wait();
}

}  // namespace paceline::comm
