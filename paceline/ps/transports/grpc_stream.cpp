#if PACELINE_WITH_GRPC

#include "paceline/ps/transports/grpc_stream.h"

#include <fmt/format.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "paceline/base/error.h"
#include "paceline/base/log.h"

namespace paceline::ps {
namespace {

constexpr int kChunk = 4 << 20;  // bytes of a payload per message: copied while the next one arrives

// How long a connection may be stuck, not taking what is written to it. It is also the sockets' TCP_USER_TIMEOUT, and nothing else
// frees a call whose bytes are stuck in a socket: cancelling it waits for the write. Hence only TCP, not unix sockets.
constexpr std::chrono::milliseconds kShortestStuck(1'000), kLongestStuck(10'000);

struct Argument {
  const char* key;
  int value;
};

// Payloads are large and few. Frames as long as a chunk save headers and copies; the sender may be two chunks ahead of the network (write
// buffer) and several ahead of the reader (lookahead), so that neither waits for the other. Pings find out that a host is gone.
constexpr Argument kArguments[] = {
    {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kChunk},  // longer payloads come in pieces
    {GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, kChunk},
    {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kChunk},
    {GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 2 * kChunk},
    {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 * kChunk},
    {GRPC_ARG_HTTP2_BDP_PROBE, 0},
    {GRPC_ARG_KEEPALIVE_TIME_MS, 10'000},
    {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
    {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000},
    {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
};

// A channel has its own connection, which is opened for it (grpc_door.cpp), and uses no proxy. gRPC retries nothing: the caller knows what
// a retry would mean, and Link makes a new channel for every attempt.
constexpr Argument kChannelArguments[] = {
    {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},
    {GRPC_ARG_ENABLE_HTTP_PROXY, 0},
    {GRPC_ARG_ENABLE_RETRIES, 0},
};

/// Calls body(bytes) for every slice of a message.
template <class Body>
void for_each_slice(const grpc::ByteBuffer& buffer, const Body& body) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) throw Broken("a message could not be read");
  for (const grpc::Slice& slice : slices) body(std::as_bytes(std::span(slice.begin(), slice.size())));
}

}  // namespace

std::string host_of(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

comm::SocketAddress socket_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  int port = -1;
  const char* end = address.data() + address.size();
  const bool number = colon != std::string::npos && colon > 0 && std::from_chars(address.data() + colon + 1, end, port).ptr == end;
  if (!number || port < 0 || port > 65535) throw ConfigError(fmt::format("'{}' is not an address; write it as host:port", address));
  return comm::tcp_address(host_of(address), port);
}

bool uses_tls(const Security& security) {
  const int given = !security.certificate.empty() + !security.key.empty() + !security.authority.empty();
  if (given != 0 && given != 3) throw ConfigError("TLS needs three PEM files: certificate, key and authority");
  return given == 3;
}

grpc::Slice Loan::slice(std::span<const std::byte> memory) {
  {
    const std::scoped_lock lock(state_->mutex);
    ++state_->slices;
  }
  const auto give_back = [](void* of) {
    const std::unique_ptr<std::shared_ptr<State>> held(static_cast<std::shared_ptr<State>*>(of));
    State& state = **held;
    const std::scoped_lock lock(state.mutex);
    if (--state.slices == 0) state.returned.notify_all();
  };
  return {const_cast<std::byte*>(memory.data()), memory.size(), give_back, new std::shared_ptr<State>(state_)};
}

void Loan::wait() {
  std::unique_lock lock(state_->mutex);
  state_->returned.wait(lock, [this] { return state_->slices == 0; });
}

void send(Writer& stream, const std::string& head, std::span<const std::byte> payload, Loan& loan) {
  const auto write = [&](const grpc::ByteBuffer& buffer, bool last) {
    grpc::WriteOptions options;
    if (!last) options.set_buffer_hint();  // returns while the bytes are in flight
    if (!stream.Write(buffer, options)) throw Broken("the stream broke while it was written to");
  };
  write(buffer_of(head), payload.empty());
  while (!payload.empty()) {
    const std::size_t bytes = std::min<std::size_t>(payload.size(), kChunk);
    const grpc::Slice slice = loan.slice(payload.first(bytes));
    payload = payload.subspan(bytes);
    write(grpc::ByteBuffer(&slice, 1), payload.empty());
  }
}

std::string receive_head(Reader& stream) {
  grpc::ByteBuffer buffer;
  if (!stream.Read(&buffer)) throw Broken("the stream ended");
  return bytes_of(buffer);
}

void receive_payload(Reader& stream, std::span<std::byte> into) {
  grpc::ByteBuffer buffer;
  while (!into.empty()) {
    if (!stream.Read(&buffer)) throw Broken("the stream ended within a message");
    if (buffer.Length() == 0 || buffer.Length() > into.size())
      throw DataError("a payload", "the length of its pieces does not match its header");
    for_each_slice(buffer, [&](std::span<const std::byte> bytes) {
      std::memcpy(into.data(), bytes.data(), bytes.size());
      into = into.subspan(bytes.size());
    });
  }
}

std::string receive_text(Reader& stream, std::int64_t bytes, std::int64_t most) {
  wire::expect_text(bytes, most);
  std::string text;
  for (grpc::ByteBuffer buffer; std::ssize(text) < bytes;) {
    if (!stream.Read(&buffer)) throw Broken("the stream ended within a text");
    if (buffer.Length() == 0 || std::ssize(text) + static_cast<std::int64_t>(buffer.Length()) > bytes)
      throw DataError("a text", "the length of its pieces does not match its header");
    text += bytes_of(buffer);
  }
  return text;
}

grpc::ByteBuffer buffer_of(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

std::string bytes_of(const grpc::ByteBuffer& buffer) {
  std::string bytes;
  for_each_slice(buffer, [&](std::span<const std::byte> part) { bytes.append(reinterpret_cast<const char*>(part.data()), part.size()); });
  return bytes;
}

void check_exposure(const std::string& address, const Security& security) {
  const bool stays = socket_address(address).is_loopback();
  if (security.secret.empty())
    throw ConfigError(
        "parameter servers as processes need the job's key; start them with `paceline run --servers`, or set PACELINE_JOB to the same "
        "secret for all of them");
  if (stays || uses_tls(security) || security.allow_insecure) return;
  throw ConfigError(
      fmt::format("{} can be reached from other hosts, where anyone could read and change the model; set TLS certificates, or allow it "
                  "explicitly on a network that you trust",
                  address));
}

std::string who(int worker) { return worker == kObserver ? "server 0, which evaluates," : fmt::format("worker {}", worker); }

void hear_grpc() {
  // Never shut down: with its last user, gRPC waits for one of its pollers, up to 10 s after a write that did not fit into its socket. A
  // process may end without that.
  grpc_init();
  gpr_set_log_function([](gpr_log_func_args* line) { log::debug("gRPC: {}", line->message); });
}

void tune(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(kLongestStuck.count()));
  for (const auto& [key, value] : kArguments) builder.AddChannelArgument(key, value);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error and not silently shared
}

Nanoseconds stuck_limit(Nanoseconds deadline) { return std::clamp<Nanoseconds>(deadline, kShortestStuck, kLongestStuck); }

void limit_stuck(const comm::Socket& socket, Nanoseconds time) {
  const auto ms = static_cast<unsigned int>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

grpc::ChannelArguments channel_arguments(Nanoseconds deadline) {
  grpc::ChannelArguments arguments;
  const auto stuck = std::chrono::duration_cast<std::chrono::milliseconds>(stuck_limit(deadline));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, static_cast<int>(stuck.count()));
  for (const auto& [key, value] : kArguments) arguments.SetInt(key, value);
  for (const auto& [key, value] : kChannelArguments) arguments.SetInt(key, value);
  return arguments;
}

}  // namespace paceline::ps

#endif
