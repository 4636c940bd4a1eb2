// The protocol between a store's server (rank 0) and its clients.
//
//   both              prove that they know the job's key (handshake.h); then only frames
//   client → server   hello: who it is, and what it believes about the job
//   server → client   reply
//   then              request, reply, request, reply, …
//
// A frame is a 4-byte length followed by that many bytes, at most kMaxFrame. Integers are little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::comm::wire {

constexpr std::size_t kMaxFrame = 1 << 20, kMaxHello = 1024;
constexpr std::size_t kHeaderBytes = sizeof(std::uint32_t);

/// Who connects, and what it believes about the job.
struct Hello {
  std::int32_t rank = 0, size = 1;
  std::int32_t pid = 0;
  std::uint64_t instance = 0;  // distinguishes a second connection of one store from a second process with the same rank
  std::string host_id, host_name;
  std::int32_t local_size = 1;  // ranks on its host

  bool one_host() const { return local_size == size; }
  std::string who() const;  ///< "rank 2 (pid 1234 on host a)"
};

enum class Op : std::uint8_t { set, get, wait, add, join, beat, blame };

struct Request {
  Op op = Op::get;
  std::string key, value;   // value: for set; "gone" for blame if nothing more will come from the accused
  std::int64_t number = 0;  // the amount of add; the deadline of wait and join and the limit of beat in ns; the rank that blame accuses
};

struct Reply {
  /// none: no value, or not in time. refused: the user must act. lost: rank `number` is to blame.
  enum class Status : std::uint8_t { ok, none, refused, lost } status = Status::ok;
  std::int64_t number = 0;
  std::string text;  // the value, or why not
};

std::string frame(std::string_view payload);
std::uint32_t frame_length(std::string_view header);  ///< of its first 4 bytes

std::string encode(const Hello& hello);
std::string encode(const Request& request);
std::string encode(const Reply& reply);

/// Nothing if the bytes are not such a message.
std::optional<Hello> decode_hello(std::string_view payload);
std::optional<Request> decode_request(std::string_view payload);
std::optional<Reply> decode_reply(std::string_view payload);

}  // namespace paceline::comm::wire
