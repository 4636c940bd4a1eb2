#include "paceline/comm/relay.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <system_error>

namespace paceline::comm {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kTlsTime = 2s;        // for a handshake
constexpr Nanoseconds kFarewell = 1s;       // to deliver the last bytes to a peer that does not read them
constexpr Nanoseconds kLastMoment = 250ms;  // to deliver the last bytes of all connections when the relay ends
constexpr std::size_t kRead = 64 << 10;
constexpr short kIn = POLLIN | POLLHUP | POLLERR;

/// Bytes on their way to a socket.
struct Outbox {
  std::string bytes;
  std::size_t sent = 0;

  std::size_t pending() const { return bytes.size() - sent; }
  /// Sends as much as the socket takes. False if it is broken.
  bool flush(const Socket& socket) {
    while (pending() > 0) {
      const ssize_t now = ::send(socket.get(), bytes.data() + sent, pending(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (now < 0) {
        if (errno == EINTR) continue;
        return errno == EAGAIN;
      }
      sent += static_cast<std::size_t>(now);
    }
    bytes.clear(), sent = 0;
    return true;
  }
};

/// What a socket has to read now; nothing if its peer has closed it or it broke.
std::optional<std::string_view> read_now(const Socket& socket, std::array<char, kRead>& into) {
  const ssize_t got = ::recv(socket.get(), into.data(), into.size(), MSG_DONTWAIT);
  if (got > 0) return std::string_view(into.data(), static_cast<std::size_t>(got));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::string_view();
  return std::nullopt;
}

}  // namespace

struct Relay::Passage {
  TlsSession tls;
  Socket network, local;  // no local one until the handshake is over
  Admit admit;
  Refuse refuse;
  Outbox to_network, to_local;
  bool ending = false;                           // one side has closed: what is in flight is delivered, nothing more is read
  std::optional<Deadline> until = std::nullopt;  // for the handshake, or for the last bytes
  bool closed = false;

  bool wants_network() const { return !ending && to_local.pending() < kRelayBuffer; }
  bool wants_local() const { return !ending && local && to_network.pending() < kRelayBuffer; }

  pollfd for_network() const { return entry(network, wants_network(), to_network); }
  pollfd for_local() const { return entry(local, wants_local(), to_local); }
  void advance(short network_events, short local_events);

 private:
  static pollfd entry(const Socket& socket, bool reads, const Outbox& outbox) {
    const int events = (reads ? POLLIN : 0) | (outbox.pending() > 0 ? POLLOUT : 0);
    return {events != 0 ? socket.get() : -1, static_cast<short>(events),
            0};  // poll() would report a hang-up again and again without being asked
  }
  void hear_network();
  void hear_local();
  void shake_hands();
  void end(Outbox& unread);  // `unread`: bytes that would not be read any more
  void close(const std::string& why);
};

void Relay::Passage::advance(short network_events, short local_events) {
  try {
    if ((network_events & kIn) != 0 && wants_network()) hear_network();
    if ((local_events & kIn) != 0 && wants_local()) hear_local();
    if (!local && !ending) shake_hands();
  } catch (const TlsError& error) {
    tls.outgoing(to_network.bytes);  // an alert
    to_network.flush(network);
    return close(error.what());
  }
  if (closed) return;
  tls.outgoing(to_network.bytes);
  if (!to_network.flush(network) || (local && !to_local.flush(local))) return close("the connection broke");
  const bool delivered = to_network.pending() == 0 && to_local.pending() == 0;
  if ((ending && delivered) || (until && until->passed())) close("it did not finish its handshake in time");
}

void Relay::Passage::hear_network() {
  std::array<char, kRead> bytes;
  const auto heard = read_now(network, bytes);
  if (!heard) return local ? end(to_network) : close("it left during its handshake");
  tls.feed(*heard);
  if (!local) return;
  for (std::string plain; !(plain = tls.read(kRead)).empty();) to_local.bytes += plain;
  if (tls.has_ended()) end(to_network);
}

void Relay::Passage::hear_local() {
  std::array<char, kRead> bytes;
  const auto heard = read_now(local, bytes);
  if (heard) return tls.write(*heard);
  tls.end();
  end(to_local);
}

void Relay::Passage::shake_hands() {
  if (!tls.handshake()) return;
  try {
    auto [ours, theirs] = socket_pair();
    local = std::move(ours);
    until.reset();
    admit(std::move(theirs));
  } catch (const std::system_error& error) {
    return close(error.code().message());
  }
  for (std::string plain; !(plain = tls.read(kRead)).empty();) to_local.bytes += plain;  // arrived with the end of the handshake
}

void Relay::Passage::end(Outbox& unread) {
  ending = true;
  unread = {};
  until.emplace(kFarewell);
}

void Relay::Passage::close(const std::string& why) {
  closed = true;
  if (!local && refuse) refuse(why);
}

Relay::Relay() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw std::system_error(errno, std::system_category(), "eventfd");
  thread_ = std::thread([this] { serve(); });
}

Relay::~Relay() {
  stop_ = true;
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void Relay::receive(TlsSession session, Socket network, Admit admit, Refuse refuse) {
  add(std::make_unique<Passage>(
      Passage{std::move(session), std::move(network), {}, std::move(admit), std::move(refuse), {}, {}, false, Deadline(kTlsTime)}));
}

Socket Relay::carry(TlsSession session, Socket network) {
  auto [ours, theirs] = socket_pair();
  auto passage = std::make_unique<Passage>(Passage{std::move(session), std::move(network), std::move(ours), {}, {}, {}, {}});
  for (std::string plain; !(plain = passage->tls.read(kRead)).empty();) passage->to_local.bytes += plain;  // arrived with the welcome
  add(std::move(passage));
  return std::move(theirs);
}

void Relay::add(std::unique_ptr<Passage> passage) {
  ++size_;
  const std::scoped_lock lock(mutex_);
  new_.push_back(std::move(passage));
  ::eventfd_write(wake_.get(), 1);
}

void Relay::take_new() {
  eventfd_t ignored = 0;
  ::eventfd_read(wake_.get(), &ignored);
  const std::scoped_lock lock(mutex_);
  for (auto& passage : new_) passages_.push_back(std::move(passage));
  new_.clear();
}

int Relay::next_timeout_ms() const {
  int timeout = -1;
  for (const auto& passage : passages_)
    if (passage->until) timeout = timeout < 0 ? passage->until->poll_ms() : std::min(timeout, passage->until->poll_ms());
  return timeout;
}

void Relay::serve() {
  std::vector<pollfd> entries;
  std::optional<Deadline> last;
  for (;;) {
    if (stop_ && !last) last.emplace(kLastMoment);
    if (last && (passages_.empty() || last->passed())) return;
    entries.assign({{wake_.get(), POLLIN, 0}});
    for (const auto& passage : passages_) entries.insert(entries.end(), {passage->for_network(), passage->for_local()});
    if (::poll(entries.data(), entries.size(), last ? last->poll_ms() : next_timeout_ms()) < 0 && errno != EINTR) return;
    std::size_t i = 1;
    for (const auto& passage : passages_) {
      passage->advance(entries[i].revents, entries[i + 1].revents);
      i += 2;
    }
    size_ -= std::erase_if(passages_, [](const auto& passage) { return passage->closed; });
    take_new();
  }
}

}  // namespace paceline::comm
