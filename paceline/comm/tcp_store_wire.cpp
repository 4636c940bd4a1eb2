#include "paceline/comm/tcp_store_wire.h"

#include <fmt/format.h>

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

/// Reads what a Writer wrote; once something is missing, everything after it is empty and `good` is false.
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

}  // namespace

std::string Hello::who() const { return fmt::format("rank {} (pid {} on host {})", rank, pid, host_name); }

std::string frame(std::string_view payload) { return Writer().number(static_cast<std::uint32_t>(payload.size())).bytes.append(payload); }

std::uint32_t frame_length(std::string_view header) { return Reader(header).number<std::uint32_t>(); }

std::string encode(const Hello& hello) {
  Writer body;
  body.number(hello.rank).number(hello.size).number(hello.pid).number(hello.instance).text(hello.host_id).text(hello.host_name);
  return body.number(hello.local_size).bytes;
}

std::optional<Hello> decode_hello(std::string_view payload) {
  Reader reader(payload);
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
  return reader.done() && request.op <= Op::blame ? std::optional(request) : std::nullopt;
}

std::string encode(const Reply& reply) { return Writer().number(reply.status).number(reply.number).text(reply.text).bytes; }

std::optional<Reply> decode_reply(std::string_view payload) {
  Reader reader(payload);
  Reply reply;
  reply.status = reader.number<Reply::Status>();
  reply.number = reader.number<std::int64_t>();
  reply.text = reader.text();
  return reader.done() && reply.status <= Reply::Status::lost ? std::optional(reply) : std::nullopt;
}

}  // namespace paceline::comm::wire
