#include "paceline/comm/reception.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "paceline/base/log.h"

namespace paceline::comm {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxGuests = 128;
constexpr Nanoseconds kGuestTime = 2s;  // for a guest to authenticate
constexpr Nanoseconds kGrace = 25ms;    // before this, no guest has to make room for others: a peer of ours may be behind a slow link
constexpr int kBurst = 8;               // connections accepted per kBreath: a flood must not take a core from the job
constexpr Nanoseconds kBreath = 5ms;
constexpr Nanoseconds kLineEvery = 1s;  // log lines about refusals
constexpr Nanoseconds kNoDescriptors = 50ms;

}  // namespace

struct Reception::Guest {
  Socket socket;
  std::string peer;
  handshake::Challenge challenge;
  std::string heard;
  Deadline grace{kGrace}, until{kGuestTime};
  bool closed = false;
};

Reception::Reception(Socket listener, std::string key, std::string_view purpose, Admit admit, Mistake mistake)
    : listener_(std::move(listener)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      key_(std::move(key)),
      purpose_(purpose),
      admit_(std::move(admit)),
      mistake_(mistake),
      breath_(kBreath) {
  if (!stop_) throw std::system_error(errno, std::system_category(), "eventfd");
  hmac_sha256(key_, purpose_);  // a build without HMAC must throw here, not in the thread
  thread_ = std::thread([this] { serve(); });
}

Reception::~Reception() {
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void Reception::Refusals::note(const std::string& peer, const char* why) {
  ++unsaid;
  if (quiet && !quiet->passed()) return;
  const std::string more = unsaid > 1 ? fmt::format(" (and {} more since the last such line)", unsaid - 1) : "";
  log::warning("refused a connection from {}: {}{}", peer, why, more);
  unsaid = 0;
  quiet.emplace(kLineEvery);
}

void Reception::serve() {
  std::vector<pollfd> entries;
  for (;;) {
    entries.assign({{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}});
    for (const Guest& guest : guests_) entries.push_back({guest.socket.get(), POLLIN, 0});
    if (::poll(entries.data(), entries.size(), next_timeout_ms()) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return;
    std::size_t i = 2;
    for (Guest& guest : guests_) {
      if (entries[i++].revents != 0) hear(guest);
      else if (guest.until.passed()) drop(guest, "it did not prove in time that it knows the job's key");
    }
    std::erase_if(guests_, [](const Guest& guest) { return guest.closed; });
    if (entries[1].revents != 0 && accept_some()) std::this_thread::sleep_for(kBreath);
  }
}

int Reception::next_timeout_ms() const { return guests_.empty() ? -1 : guests_.front().until.poll_ms(); }

bool Reception::accept_some() {
  if (breath_.passed()) breath_ = Deadline(kBreath), taken_ = 0;
  for (; taken_ < kBurst; ++taken_) {
    if (guests_.size() >= kMaxGuests && !guests_.front().grace.passed()) return true;
    auto [socket, peer] = accept_from(listener_);
    if (!socket) {
      // Without a free descriptor the connection stays in the queue, and the loop must not spin on it.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) std::this_thread::sleep_for(kNoDescriptors);
      return false;
    }
    if (same_user(socket)) take_in(std::move(socket), std::move(peer));
    else refusals_.note(peer, "it belongs to another user");
  }
  return true;
}

void Reception::take_in(Socket socket, std::string peer) {
  if (guests_.size() >= kMaxGuests) {
    drop(guests_.front(), "too many others came after it before it proved that it knows the job's key");
    guests_.pop_front();
  }
  Guest guest{std::move(socket), std::move(peer), handshake::Challenge(key_, purpose_), {}};
  const std::string greeting = guest.challenge.greeting();
  // A fresh connection accepts this much without blocking; if it does not, the peer is not one of ours.
  if (::send(guest.socket.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == std::ssize(greeting))
    guests_.push_back(std::move(guest));
}

void Reception::hear(Guest& guest) {
  char bytes[handshake::kResponseBytes];
  const ssize_t got = ::recv(guest.socket.get(), bytes, handshake::kResponseBytes - guest.heard.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return drop(guest, "it left before it proved that it knows the job's key");
  guest.heard.append(bytes, static_cast<std::size_t>(got));
  if (guest.heard.size() < handshake::kResponseBytes) return;
  const std::optional<std::string> proof = guest.challenge.answer(guest.heard);
  if (!proof) return refuse(guest);
  guest.closed = true;
  if (::send(guest.socket.get(), proof->data(), proof->size(), MSG_NOSIGNAL | MSG_DONTWAIT) == std::ssize(*proof))
    admit_(std::move(guest.socket), guest.peer);
}

void Reception::refuse(Guest& guest) {
  std::optional<std::string> correction;
  if (!mistake_.purpose.empty()) correction = guest.challenge.correct(guest.heard, mistake_.purpose);
  const std::string& answer = correction ? *correction : handshake::kRefusal;
  ::send(guest.socket.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  drop(guest, correction ? mistake_.why : "it does not know the job's key");
}

void Reception::drop(Guest& guest, const char* why) {
  refusals_.note(guest.peer, why);
  guest.socket.reset();
  guest.closed = true;
}

}  // namespace paceline::comm
