#include "paceline/comm/heartbeat.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <sstream>
#include <system_error>

#include "paceline/base/process_state.h"
#include "paceline/comm/tcp_store.h"

namespace paceline::comm {
namespace {

constexpr Nanoseconds kBeatInterval = std::chrono::milliseconds(250);
constexpr Nanoseconds kBeatTransfer = std::chrono::seconds(1);  // for a message that has begun to arrive

/// Several beats fit into any limit, however short.
Nanoseconds interval_for(Nanoseconds limit) { return limit.count() > 0 ? std::min(kBeatInterval, limit / 8) : kBeatInterval; }

/// 0: a process of another host, about which nothing is known.
bool runs(pid_t process) {
  const std::optional<ProcessState> state = process_state(process);
  return state && state->runs();
}

}  // namespace

Heartbeat::Heartbeat(Socket socket, Nanoseconds limit)
    : socket_(std::move(socket)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), limit_(limit), interval_(interval_for(limit)) {
  if (!wake_) throw std::system_error(errno, std::system_category(), "eventfd");
  thread_ = std::thread([this] { run(); });
}

Heartbeat::~Heartbeat() {
  closing_ = true;
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

std::optional<Loss> Heartbeat::loss() const {
  const int rank = lost_.load(std::memory_order_acquire);
  return rank < 0 ? std::nullopt : std::optional(Loss{rank, Nanoseconds(silent_.load(std::memory_order_relaxed))});
}

std::optional<int> Heartbeat::cause() const {
  const int rank = cause_.load(std::memory_order_acquire);
  return rank < 0 ? std::nullopt : std::optional(rank);
}

void Heartbeat::run() {
  try {
    exchange_beats();
  } catch (const std::exception&) {
    // The server is gone: rank 0 left or died. Ranks that wait for it find out in other ways.
  }
}

void Heartbeat::exchange_beats() {
  const std::string beat = wire::frame(wire::encode(wire::Request{wire::Op::beat, {}, {}, limit_.count()}));
  const SteadyClock clock;
  Silence server;
  server.beat(0, limit_);
  bool asked = false;
  for (Nanoseconds next = clock.now(); !closing_ && !(lost_ == 0);) {
    if (!asked && clock.now() >= next) {
      send_all(socket_, beat, Deadline(kBeatTransfer));
      asked = true;
      next = clock.now() + interval_;
    }
    pollfd entries[] = {{wake_.get(), POLLIN, 0}, {asked ? socket_.get() : -1, POLLIN, 0}};
    const Nanoseconds nap = asked ? interval_ : std::max(next - clock.now(), Nanoseconds(0));
    ::poll(entries, 2, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(nap).count()));
    if (entries[1].revents != 0) {
      hear(receive_reply(socket_, Deadline(kBeatTransfer)).text);
      asked = false;
      server.beat(0, limit_);
    }
    if (server.is_quiet(0) && runs(peer_process(socket_))) server.excuse(0);
    server.look(clock.now());
    if (server.loss()) lose(*server.loss());
  }
}

/// "lost rank, its silence in ns, cause": what StoreServer answers to a beat.
void Heartbeat::hear(const std::string& text) {
  int lost = -1, cause = -1;
  std::int64_t silent = 0;
  if (!(std::istringstream(text) >> lost >> silent >> cause)) return;
  if (lost >= 0) lose({lost, Nanoseconds(silent)});
  if (cause >= 0) cause_ = cause;
}

void Heartbeat::lose(const Loss& loss) {
  if (lost_ >= 0) return;
  silent_.store(loss.silent.count(), std::memory_order_relaxed);
  lost_.store(loss.rank, std::memory_order_release);
}

}  // namespace paceline::comm
