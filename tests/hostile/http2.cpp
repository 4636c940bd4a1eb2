#include "tests/hostile/http2.h"

#include <poll.h>

#include <array>

namespace paceline::hostile {
namespace {

enum Type { kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kGoAway = 7, kWindowUpdate = 8 };
enum Flag { kEndStream = 1, kAck = 1, kEndHeaders = 4 };
constexpr std::size_t kFrameHead = 9, kPiece = 16'384;  // what every server takes

std::string big_endian(std::uint32_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(value >> (8 * i));
  return text;
}

std::uint32_t number_at(const std::string& text, std::size_t at, std::size_t bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value = value << 8 | static_cast<unsigned char>(text.at(at + i));
  return value;
}

/// HPACK, a literal without a table.
std::string header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
}

}  // namespace

std::string grpc_message(std::string_view bytes, std::uint32_t length) {
  return std::string(1, '\0') + big_endian(length, 4) + std::string(bytes);
}

Http2::Http2(comm::Socket socket) : socket_(std::move(socket)) {
  const comm::Deadline until(std::chrono::seconds(20));
  comm::send_all(socket_, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", until);
  write(kSettings, 0, 0, "", until);
}

int Http2::call(const std::string& path) {
  const int number = next_;
  next_ += 2;
  windows_[number] = first_window_;
  const std::string block = header(":method", "POST") + header(":scheme", "http") + header(":path", path) +
                            header(":authority", "localhost") + header("content-type", "application/grpc") + header("te", "trailers");
  write(kHeaders, kEndHeaders, number, block, comm::Deadline(std::chrono::seconds(20)));
  return number;
}

bool Http2::send(int call, std::string_view bytes, const comm::Deadline& until) {
  while (!bytes.empty()) {
    const auto allowed = [&] { return windows_.contains(call) ? std::min(window_, windows_[call]) : 0; };
    while (open_ && windows_.contains(call) && allowed() <= 0 && !until.passed()) listen(until.or_sooner(std::chrono::milliseconds(50)));
    const std::int64_t most = std::min<std::int64_t>(allowed(), kPiece);
    if (!open_ || most <= 0) return false;
    const std::string_view piece = bytes.substr(0, static_cast<std::size_t>(most));
    if (!send_piece(call, piece, until)) return false;
    bytes.remove_prefix(piece.size());
    if (call % 2 == 1) listen(comm::Deadline(Nanoseconds(0)));
  }
  return true;
}

bool Http2::send_regardless(int call, std::string_view bytes, const comm::Deadline& until) {
  for (; !bytes.empty() && open_; bytes.remove_prefix(std::min(bytes.size(), kPiece))) {
    if (!send_piece(call, bytes.substr(0, kPiece), until)) return false;
    listen(comm::Deadline(Nanoseconds(0)));
  }
  return open_;
}

bool Http2::send_piece(int call, std::string_view piece, const comm::Deadline& until) {
  write(kData, 0, call, piece, until);
  window_ -= std::ssize(piece);
  if (const auto found = windows_.find(call); found != windows_.end()) found->second -= std::ssize(piece);
  return open_;
}

void Http2::write(int type, int flags, int stream, std::string_view payload, const comm::Deadline& until) {
  if (!open_) return;
  const std::string head = big_endian(static_cast<std::uint32_t>(payload.size()), 3) + static_cast<char>(type) + static_cast<char>(flags) +
                           big_endian(static_cast<std::uint32_t>(stream), 4);
  try {
    comm::send_all(socket_, head + std::string(payload), until);
  } catch (const std::system_error&) {
    open_ = false;
  }
}

void Http2::listen(const comm::Deadline& until) {
  std::array<char, 65'536> bytes;
  while (open_) {
    pollfd entry{socket_.get(), POLLIN, 0};
    if (::poll(&entry, 1, until.poll_ms()) <= 0) return;
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) open_ = false;
    else in_.append(bytes.data(), static_cast<std::size_t>(got));
    while (in_.size() >= kFrameHead && in_.size() >= kFrameHead + number_at(in_, 0, 3)) {
      const std::size_t length = number_at(in_, 0, 3);
      const Frame frame{in_[3], in_[4], static_cast<int>(number_at(in_, 5, 4)), in_.substr(kFrameHead, length)};
      in_.erase(0, kFrameHead + length);
      hear(frame);
    }
  }
}

void Http2::hear(const Frame& frame) {
  const comm::Deadline soon(std::chrono::seconds(2));
  switch (frame.type) {
    case kSettings:
      if ((frame.flags & kAck) == 0) take_settings(frame.payload), write(kSettings, kAck, 0, "", soon);
      return;
    case kPing:
      if ((frame.flags & kAck) == 0) write(kPing, kAck, 0, frame.payload, soon);
      return;
    case kWindowUpdate:
      if (frame.stream == 0) window_ += number_at(frame.payload, 0, 4);
      else if (windows_.contains(frame.stream)) windows_[frame.stream] += number_at(frame.payload, 0, 4);
      return;
    case kReset:
    case kHeaders:
      if (frame.type == kReset || (frame.flags & kEndStream) != 0) ended_ += static_cast<int>(windows_.erase(frame.stream));
      return;
    default: return;
  }
}

void Http2::take_settings(const std::string& payload) {
  constexpr std::uint32_t kInitialWindow = 4;
  for (std::size_t at = 0; at + 6 <= payload.size(); at += 6) {
    if (number_at(payload, at, 2) != kInitialWindow) continue;
    const std::int64_t window = number_at(payload, at + 2, 4);
    for (auto& [call, left] : windows_) left += window - first_window_;
    first_window_ = window;
  }
}

}  // namespace paceline::hostile
