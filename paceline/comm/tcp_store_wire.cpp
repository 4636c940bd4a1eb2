#include "paceline/comm/tcp_store_wire.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace paceline::comm::wire {
namespace {

class Writer {
 public:
  template <class T>
  Writer& number(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Writer& text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes.append(value);
    return *this;
  }

  std::string bytes;
};

/// Reads what a Writer wrote; once something was not there, everything after it is empty and `good` is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  template <class T>
  T number() {
    T value{};
    const std::string_view bytes = take(sizeof(value));
    if (good_) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
  std::string text() { return std::string(take(number<std::uint32_t>())); }
  std::string_view rest() const { return left_; }
  bool done() const { return good_ && left_.empty(); }

 private:
  std::string_view take(std::size_t count) {
    good_ = good_ && count <= left_.size();
    if (!good_) return {};
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  std::string_view left_;
  bool good_ = true;
};

/// The token as a key of 128 bits.
std::array<std::uint64_t, 2> key_of(std::string_view job) { return {siphash({1, 0}, job), siphash({2, 0}, job)}; }

std::uint64_t tag_of(std::string_view body, std::string_view job, std::string_view nonce) {
  return siphash(key_of(job), std::string(nonce).append(body));
}

}  // namespace

std::string public_name(std::string_view job) { return fmt::format("{:016x}", siphash(key_of(job), "public name")); }

std::string Hello::who() const { return fmt::format("rank {} (pid {} on host {})", rank, pid, host_name); }

std::string frame(std::string_view payload) { return Writer().number(static_cast<std::uint32_t>(payload.size())).bytes.append(payload); }

std::uint32_t frame_length(std::string_view header) { return Reader(header).number<std::uint32_t>(); }

std::string encode(const Hello& hello, std::string_view job, std::string_view nonce) {
  Writer body;
  body.number(hello.rank).number(hello.size).number(hello.pid).number(hello.instance).text(hello.host_id).text(hello.host_name);
  body.number(hello.local_size);
  return Writer().number(tag_of(body.bytes, job, nonce)).bytes.append(body.bytes);
}

std::optional<Hello> decode_hello(std::string_view payload, std::string_view job, std::string_view nonce) {
  Reader reader(payload);
  const auto tag = reader.number<std::uint64_t>();
  if (tag != tag_of(reader.rest(), job, nonce)) return std::nullopt;
  Hello hello;
  hello.rank = reader.number<std::int32_t>();
  hello.size = reader.number<std::int32_t>();
  hello.pid = reader.number<std::int32_t>();
  hello.instance = reader.number<std::uint64_t>();
  hello.host_id = reader.text();
  hello.host_name = reader.text();
  hello.local_size = reader.number<std::int32_t>();
  return reader.done() ? std::optional(hello) : std::nullopt;
}

std::string encode(const Request& request) {
  return Writer().number(request.op).text(request.key).text(request.value).number(request.number).bytes;
}

std::optional<Request> decode_request(std::string_view payload) {
  Reader reader(payload);
  Request request;
  request.op = reader.number<Op>();
  request.key = reader.text();
  request.value = reader.text();
  request.number = reader.number<std::int64_t>();
  return reader.done() && request.op <= Op::join ? std::optional(request) : std::nullopt;
}

std::string encode(const Reply& reply) { return Writer().number(reply.status).number(reply.number).text(reply.text).bytes; }

std::optional<Reply> decode_reply(std::string_view payload) {
  Reader reader(payload);
  Reply reply;
  reply.status = reader.number<Reply::Status>();
  reply.number = reader.number<std::int64_t>();
  reply.text = reader.text();
  return reader.done() && reply.status <= Reply::Status::stranger ? std::optional(reply) : std::nullopt;
}

std::uint64_t siphash(std::array<std::uint64_t, 2> key, std::string_view data) {
  std::uint64_t v0 = key[0] ^ 0x736f6d6570736575, v1 = key[1] ^ 0x646f72616e646f6d;
  std::uint64_t v2 = key[0] ^ 0x6c7967656e657261, v3 = key[1] ^ 0x7465646279746573;
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
      v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
    }
  };
  const auto mix = [&](std::uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  };
  std::string_view left = data;
  for (; left.size() >= 8; left.remove_prefix(8)) {
    std::uint64_t word;
    std::memcpy(&word, left.data(), 8);
    mix(word);
  }
  std::uint64_t last = static_cast<std::uint64_t>(data.size()) << 56;
  std::memcpy(&last, left.data(), left.size());
  mix(last);
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace paceline::comm::wire
