#include "paceline/comm/gpu_message.h"

#include <fmt/format.h>

#include "paceline/base/error.h"

namespace paceline::comm {
namespace {

// A tag apart from those of other messages and collectives. If a rank sends from a GPU and its peer receives on the CPU, both fail at the
// deadline, and neither mistakes a pointer for data.
constexpr Tag kPlaces = Tag{1} << 40, kAnswers = Tag{1} << 41;

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
    tells_ = transport_.send(op_.peer, kPlaces + tag, &place_, sizeof(place_));
    answers_ = transport_.receive(op_.peer, kAnswers + tag, &answer_, sizeof(answer_),
                                  {});  // posted now, because answers arrive in the order of the sends
  }
  told_ = told_ || tells_->test();
  return told_ && answers_->test();
}

bool GpuMessage::advance_receive() {
  const auto tag = static_cast<Tag>(op_.tag);
  if (!tells_) tells_ = transport_.receive(op_.peer, kPlaces + tag, &place_, sizeof(place_), {});
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

StagedMessage::StagedMessage(Transport& transport, const Operation& operation)
    : transport_(transport), op_(operation), host_(static_cast<std::size_t>(operation.buffer.bytes())) {
  if (op_.kind == Operation::Kind::send) mark_.record(op_.buffer.stream);
}

bool StagedMessage::advance() {
  const auto tag = static_cast<Tag>(op_.tag);
  const bool sends = op_.kind == Operation::Kind::send;
  if (!request_ && sends) {
    mark_.wait();
    copy(host_.data(), op_.buffer.data);
    request_ = transport_.send(op_.peer, tag, host_.data(), op_.buffer.bytes());
  } else if (!request_) {
    request_ = transport_.receive(op_.peer, tag, host_.data(), op_.buffer.bytes(), {});
  }
  if (!request_->test()) return false;
  if (!sends) copy(op_.buffer.data, host_.data());
  return true;
}

void StagedMessage::copy(void* to, const void* from) {
  if (host_.empty()) return;
  const gpu::OnDeviceOf device(op_.buffer.data);
  gpu::copy(to, from, op_.buffer.bytes(), op_.buffer.stream);
  mark_.record(op_.buffer.stream);
  mark_.wait();
}

}  // namespace paceline::comm
