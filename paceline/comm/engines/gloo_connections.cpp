#if PACELINE_WITH_GLOO
#include "paceline/comm/engines/gloo_connections.h"

#include <csignal>

#include <fmt/format.h>
#include <gloo/transport/tcp/device.h>

#include "paceline/comm/sockets.h"

namespace paceline::comm::over_gloo {
namespace {

constexpr std::chrono::seconds kConnectTimeout{30};
constexpr std::chrono::milliseconds kBreakTime{200};
constexpr std::uint64_t kNeverSent = ~std::uint64_t{0}, kLastWords = kNeverSent - 1;  // no group has these slots

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

Connections::Connections(const World& world, const Places& places, const std::string& address, const shared::Exchange& exchange) {
  // A write to a broken connection must fail, and not end the process. Gloo does not ensure that.
  if (struct sigaction action{}; sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
  context_ = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str()))->createContext(world.rank, world.size);
  context_->setTimeout(kConnectTimeout);

  // Each connection has a listener of its own. Every rank publishes the addresses of all its listeners, in fields of equal length, by rank.
  std::vector<int> others;
  for (int peer = 0; peer < world.size; ++peer)
    if (places.hosts[index(peer)] != places.hosts[index(world.rank)]) others.push_back(peer);
  std::size_t length = 0;
  for (int peer : others) length = context_->createPair(peer)->address().bytes().size();
  std::string listeners(length * index(world.size), '\0');
  for (int peer : others) {
    const std::vector<char> bytes = context_->getPair(peer)->address().bytes();
    listeners.replace(length * index(peer), length, bytes.data(), length);
  }
  const std::vector<std::string> all = exchange(listeners);
  for (int peer : others) {
    const char* bytes = all[index(peer)].data() + length * index(world.rank);
    try {
      connect(peer, {bytes, bytes + length});
    } catch (const std::exception& error) {
      throw PeerError(peer, "connect", 0, fmt::format("rank {} cannot be reached from {}: {}", peer, address, error.what()));
    }
  }
}

void Connections::connect(int peer, const std::vector<char>& address) {
  context_->getPair(peer)->connect(address);
  auto& silent = silent_[peer] = std::make_unique<Ticket>(*context_, watchers_, nullptr, nullptr, 0, false);
  silent->post(peer, kNeverSent);
  listen_to(peer);
}

bool Connections::is_broken(int peer) {
  if (silent_.at(peer)->look() != Ticket::State::broken) return false;
  const std::lock_guard lock(mutex_);
  hear(peer);
  const auto& ticket = heard_.at(peer).ticket;
  return !ticket || ticket->look() == Ticket::State::broken;
}

void Connections::await_break(int peer) {
  for (const Deadline until(kBreakTime); !is_broken(peer) && !until.passed();) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Connections::say(const LastWords& words, const std::vector<int>& peers) {
  const std::lock_guard lock(mutex_);
  for (int peer : peers) {
    if (!heard_.contains(peer)) continue;
    Words& own = said_.emplace_back(Words{words, nullptr});
    own.ticket = ticket_for(own, true);
    try {
      own.ticket->post(peer, kLastWords);
    } catch (const std::exception&) {
      // The peer is gone.
    }
  }
}

int Connections::culprit_of(int peer, std::uint64_t group) {
  const std::lock_guard lock(mutex_);
  hear(peer);
  const auto found = culprits_.find({peer, group});
  return found == culprits_.end() ? -1 : found->second;
}

std::unique_ptr<Ticket> Connections::ticket_for(Words& words, bool sends) {
  return std::make_unique<Ticket>(*context_, watchers_, nullptr, &words.words, sizeof(LastWords), sends);
}

void Connections::listen_to(int peer) {
  Words& next = heard_[peer];
  next.ticket = ticket_for(next, false);
  next.ticket->post(peer, kLastWords);
}

void Connections::hear(int peer) {
  Words& next = heard_.at(peer);
  if (!next.ticket || next.ticket->look() != Ticket::State::done) return;
  culprits_[{peer, next.words.group}] = static_cast<int>(next.words.culprit);
  try {
    listen_to(peer);
  } catch (const std::exception&) {
    next.ticket.reset();  // the peer has left meanwhile
  }
}

}  // namespace paceline::comm::over_gloo
#endif
