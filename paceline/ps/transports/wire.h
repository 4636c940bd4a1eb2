// The messages between workers and servers as bytes, for any transport.
//
// A message is a head and its payload: the head has a fixed size for each verb (Head, then the verb's Body), the payload (parameters,
// gradients, texts) follows in any number of pieces. A worker sends requests; the server answers with the same verb or with `error`.
// Numbers are little-endian, as on every processor that Paceline runs on.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>

#include "paceline/ps/client.h"
#include "paceline/ps/transports/task.h"

namespace paceline::ps::wire {

enum class Verb : std::uint16_t { error, join, pull, report, push, cancelled, next, done, beat, leave, order, answer };
std::string_view name(Verb verb);

struct Head {
  std::uint32_t magic = 0x53504c50;  // "PLPS"
  std::uint16_t version = 8;
  Verb verb = Verb::error;
  std::int64_t payload = 0;  // bytes
};

// ---- bodies
struct Nothing {};
struct Join {  // payload: the layout, after it the compression, and after that the terms
  std::uint64_t token = 0;
  std::int64_t worker = -1;                  // −1: any number
  std::int64_t layout = 0, compression = 0;  // bytes
};
struct Joined {
  std::int64_t worker = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t wait = 0, silence = 0;  // nanoseconds, of the host
  std::int64_t version = 0;            // the server's current one
  std::int64_t durable = false;        // acknowledged pushes survive a restart, and duplicates are recognised: pushes may be retried
  std::int64_t answers = false;        // pushes are answered with the worker's new parameters
  std::int64_t resumed = -1;           // the version in the checkpoint that the server began with; −1: none, or not known
};
struct PullRequest {  // the answer's payload: the range, if it is wanted
  float rate = 0;
  std::uint32_t wanted = true;
  std::int64_t number = 0;  // the minibatch that is computed with them; 0: none
};
struct Pulled {
  std::int64_t version = 0;
};
struct PushRequest {  // payload: the range or its code; nothing for a gradient that is not finite
  enum Kind : std::int64_t { plain, coded, not_finite };
  Push push;
  std::int64_t kind = plain;
};
struct Pushed {  // payload: for rules with replicas, the worker's new parameters
  std::int64_t fate = 0, gathered = 0;
};
struct Answer {  // to cancelled
  std::int64_t yes = 0;
};
struct NextRequest {
  std::int64_t visits = true;  // the minibatch will begin with a pull
};
struct Next {
  enum Kind : std::int64_t { later, task, finished, order };  // order: the worker reads it, carries it out and asks again
  std::int64_t kind = later;
  Task what;
};
struct Done {
  Task task;
  double loss_sum = 0, right = 0;
  std::int64_t targets = 0;
};
/// A text whose length the asker does not know: the first answer says how long it is, the second brings it. An observer reads what a server
/// answers to its order, which is the payload of its first request; a worker reads the order that the first server has for it.
struct OrderRequest {
  std::int64_t bytes = 0;  // as the server said; 0: it is asked for the first time
};
struct OrderSize {
  std::int64_t bytes = 0;
};
struct Beat {
  std::uint64_t token = 0;
  std::int64_t worker = 0;
};
struct Failure {  // payload: the operation, and after it the message
  enum Kind : std::int64_t { config, data, peer, other };
  std::int64_t kind = other;
  std::int64_t rank = -1, step = 0;
  std::int64_t operation = 0;  // bytes
};

template <class Body>
inline constexpr std::size_t kBodyBytes = std::is_empty_v<Body> ? 0 : sizeof(Body);

template <class Body>
std::string pack(Verb verb, const Body& body, std::int64_t payload = 0) {
  static_assert(std::is_trivially_copyable_v<Body>);
  const Head head{.verb = verb, .payload = payload};
  std::string bytes(sizeof(Head) + kBodyBytes<Body>, '\0');
  std::memcpy(bytes.data(), &head, sizeof(Head));
  std::memcpy(bytes.data() + sizeof(Head), &body, kBodyBytes<Body>);
  return bytes;
}

/// Throws DataError if the bytes do not begin as a message of this version does.
Head unpack_head(std::string_view bytes);
void expect_body(std::string_view bytes, std::size_t size);
/// For a payload that is a text: refuses one that is too long.
void expect_text(std::int64_t bytes, std::int64_t most);
inline constexpr std::int64_t kMostFailure = 1 << 20;  // of an error's text
/// Bytes of an order or its answer that are believed: room for a list of all tensors, and for the values of one.
constexpr std::int64_t longest_order(std::int64_t arena_length) { return (std::int64_t{1} << 26) + 8 * arena_length; }

template <class Body>
Body unpack(std::string_view bytes) {
  expect_body(bytes, kBodyBytes<Body>);
  Body body;
  std::memcpy(&body, bytes.data() + sizeof(Head), kBodyBytes<Body>);
  return body;
}

/// Converts an exception to head and payload, and back: `raise` throws what was caught on the other side, as the same type.
struct FailureMessage {
  std::string head, payload;
};
FailureMessage pack_failure(const std::exception& error);
[[noreturn]] void raise(std::string_view head, std::string_view payload);

}  // namespace paceline::ps::wire
