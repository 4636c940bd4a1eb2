// What goes over the wire between a store's server (rank 0) and its clients.
//
//   server → client   greeting: magic, version, a nonce of 16 bytes. The server speaks first: a client says nothing to a stranger.
//   client → server   frame: tag, hello. The tag is SipHash-2-4 (Aumasson, Bernstein 2012) of nonce and hello under the job's token, so
//   that
//                     the token itself never travels and an old hello is of no use.
//   server → client   frame: reply.
//   then              frames: request, reply, request, reply, …
//
// A frame is a length of 4 bytes and so many bytes, kMaxFrame at most. Integers are little-endian.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace paceline::comm::wire {

constexpr std::size_t kMaxFrame = 1 << 20, kMaxHello = 1024;
constexpr std::size_t kHeaderBytes = sizeof(std::uint32_t), kNonceBytes = 16;
constexpr std::string_view kMagic{"PACELINE\2\0\0\0", 12};  // name and version
constexpr std::size_t kGreetingBytes = kMagic.size() + kNonceBytes;

/// Who connects, and what it believes about the job.
struct Hello {
  std::int32_t rank = 0, size = 1;
  std::int32_t pid = 0;
  std::uint64_t instance = 0;  // tells a second connection of one store from a second process with the same rank
  std::string host_id, host_name;
  std::int32_t local_size = 1;  // so many ranks are on its host

  bool one_host() const { return local_size == size; }
  std::string who() const;  ///< "rank 2 (pid 1234 on host a)"
};

enum class Op : std::uint8_t { set, get, wait, add, join };

struct Request {
  Op op = Op::get;
  std::string key, value;   // value: of set
  std::int64_t number = 0;  // the amount of add; the deadline of wait and join in ns
};

struct Reply {
  /// none: nothing there, or not in time. refused: the user must act. lost: rank `number` is to blame. stranger: another job's.
  enum class Status : std::uint8_t { ok, none, refused, lost, stranger } status = Status::ok;
  std::int64_t number = 0;
  std::string text;  // the value, or why not
};

std::string frame(std::string_view payload);
std::uint32_t frame_length(std::string_view header);  ///< of its first 4 bytes

std::string encode(const Hello& hello, std::string_view job, std::string_view nonce);
std::string encode(const Request& request);
std::string encode(const Reply& reply);

/// Nothing where the bytes are not such a message; for a hello also where it was not made with this token for this nonce.
std::optional<Hello> decode_hello(std::string_view payload, std::string_view job, std::string_view nonce);
std::optional<Request> decode_request(std::string_view payload);
std::optional<Reply> decode_reply(std::string_view payload);

std::uint64_t siphash(std::array<std::uint64_t, 2> key, std::string_view data);
/// Names the job in places where its token must not be seen.
std::string public_name(std::string_view job);

}  // namespace paceline::comm::wire
