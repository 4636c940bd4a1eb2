// What both sides of the transport between ranks share: how a message of wire.h becomes messages of a communicator.
#pragma once

#include <cstring>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/comm/communicator.h"
#include "paceline/ps/transports/wire.h"

namespace paceline::ps {

/// A head in a message of fixed size, since a receive must know the size. Its payload, if any, is a message of its own.
struct Envelope {
  std::int64_t bytes = 0;
  char head[120] = {};

  void put(const std::string& text) {
    ensure(text.size() <= sizeof(head), "a head fits into its envelope");
    bytes = std::ssize(text);
    std::memcpy(head, text.data(), text.size());
  }
  std::string get() const {
    if (bytes < 0 || bytes > static_cast<std::int64_t>(sizeof(head)))
      throw DataError("a message of the parameter server", "it has no head");
    return {head, static_cast<std::size_t>(bytes)};
  }
  comm::Buffer buffer() { return {reinterpret_cast<std::uint8_t*>(this), static_cast<std::int64_t>(sizeof(*this))}; }
};

/// Messages in flight. Those that are not done on destruction, because of an exception, are abandoned, since their memory is freed too.
struct Passages : std::vector<comm::Work> {
  Passages() = default;
  Passages(const Passages&) = delete;
  Passages& operator=(const Passages&) = delete;
  ~Passages() {
    for (const comm::Work& work : *this) work.abandon();
  }
};

enum RankTag : int { kAsk = 1, kAskPayload, kAnswer, kAnswerPayload };

/// Bytes as a communicator takes them. Sends only read them.
inline comm::Buffer buffer_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(bytes.data())), std::ssize(bytes)};
}

}  // namespace paceline::ps
