// gloo: processes of several hosts without MPI. Gloo's TCP transport carries what crosses hosts; of Gloo's own collectives none is used.
//
// Every rank is connected with all ranks of other hosts. A connection that breaks is the sign that a rank is gone. A rank that lives but
// gave up on a group says so in its last words.
//
// Invariant: whoever is done may leave without waiting for the others. What it sent is in the system's hands by then, and nobody sends
// anything to it any more, not even a question whether it lives: the answer would undo what is still on its way.
#if PACELINE_WITH_GLOO
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>

#include "paceline/base/host.h"
#include "paceline/base/log.h"
#include "paceline/comm/engines/address.h"
#include "paceline/comm/engines/pieces.h"
#include "paceline/comm/engines/two_level.h"
#include "paceline/comm/sockets.h"

namespace paceline::comm {
namespace {

using Context = gloo::transport::Context;

constexpr std::chrono::seconds kConnectTimeout{30};
constexpr std::chrono::hours kForever{24 * 365};
constexpr std::chrono::milliseconds kBreakTime{200};

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

class Watchers;

/// One send or receive.
class Ticket {
 public:
  enum class State { posted, done, broken };

  /// `host`: whose bell is rung once it is done, if anybody's.
  Ticket(Context& context, Watchers& watchers, const shared::Group* host, void* data, std::size_t bytes, bool sends)
      : buffer_(context.createUnboundBuffer(data, bytes)), watchers_(watchers), host_(host), sends_(sends) {}
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() {
    if (sends_) {
      buffer_->abortWaitSend();
    } else {
      buffer_->abortWaitRecv();
    }
    while (watched_.load(std::memory_order_acquire)) std::this_thread::yield();
  }

  /// Throws what Gloo throws where the connection is broken already.
  void post(int peer, std::uint64_t slot) {
    if (sends_) {
      buffer_->send(peer, slot, 0, buffer_->size);
    } else {
      buffer_->recv(peer, slot, 0, buffer_->size);
    }
  }
  State look();
  /// Until it is done, broken, or being destroyed.
  void wait() {
    try {
      if (sends_ ? buffer_->waitSend(nullptr, kForever) : buffer_->waitRecv(nullptr, kForever))
        state_.store(State::done, std::memory_order_seq_cst);
    } catch (const std::exception&) {
      state_.store(State::broken, std::memory_order_seq_cst);
    }
    if (host_) host_->ring(host_->rank());
    watched_.store(false, std::memory_order_release);
  }

 private:
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  Watchers& watchers_;
  const shared::Group* host_;
  const bool sends_;
  std::atomic<bool> asked_ = false, watched_ = false;
  std::atomic<State> state_ = State::posted;
};

/// Threads that wait for tickets, one each: Gloo has no way to ask whether something is done without waiting for it. A thread serves the
/// next ticket when it is done with one, so there are as many as messages were ever under way at a time.
class Watchers {
 public:
  ~Watchers() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void watch(Ticket& ticket) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(&ticket);
    if (idle_ < waiting_.size()) {
      threads_.emplace_back([this] { loop(); });
    } else {
      changed_.notify_one();
    }
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      --idle_;
      if (waiting_.empty()) return;
      Ticket* ticket = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      ticket->wait();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Ticket*> waiting_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

Ticket::State Ticket::look() {
  if (!asked_.exchange(true)) {
    watched_.store(true, std::memory_order_relaxed);
    watchers_.watch(*this);
  }
  return state_.load(std::memory_order_seq_cst);
}

/// Of a rank that gave up on a group, because of a rank of the run.
struct LastWords {
  std::uint64_t group;
  std::int64_t culprit;
};

/// This process's connections, shared by the communicators that were split from one another.
class Mesh {
 public:
  Mesh(const World& world, const Places& places, const std::string& address, const shared::Exchange& exchange) {
    // A write to a connection that broke must be an error, not the end of the process. Gloo leaves that to others.
    if (struct sigaction action{}; sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
    context_ = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str()))->createContext(world.rank, world.size);
    context_->setTimeout(kConnectTimeout);

    // Each connection has a listener of its own. Everybody tells where all of his are, in fields of one length, by rank.
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
        context_->getPair(peer)->connect({bytes, bytes + length});
        auto& silent = silent_[peer] = std::make_unique<Ticket>(*context_, watchers_, nullptr, nullptr, 0, false);
        silent->post(peer, kNeverSent);
        listen_to(peer);
      } catch (const std::exception& error) {
        throw PeerError(peer, "connect", 0, fmt::format("rank {} can not be reached from {}: {}", peer, address, error.what()));
      }
    }
  }

  Context& context() { return *context_; }
  Watchers& watchers() { return watchers_; }
  int rank() const { return context_->rank; }
  std::int64_t next_group() { return ++groups_; }
  /// Then all that it said has come.
  bool is_broken(int peer) {
    if (silent_.at(peer)->look() != Ticket::State::broken) return false;
    const std::lock_guard lock(mutex_);
    hear(peer);
    const auto& ticket = heard_.at(peer).ticket;
    return !ticket || ticket->look() == Ticket::State::broken;
  }
  /// After a message told that it is: it takes the threads a moment to see it everywhere.
  void await_break(int peer) {
    for (const Deadline until(kBreakTime); !is_broken(peer) && !until.passed();) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  /// To all in `peers` that this rank is connected with.
  void say(const LastWords& words, const std::vector<int>& peers) {
    const std::lock_guard lock(mutex_);
    for (int peer : peers) {
      if (!heard_.contains(peer)) continue;
      Words& own = said_.emplace_back(Words{words, nullptr});
      own.ticket = ticket_for(own, true);
      try {
        own.ticket->post(peer, kLastWords);
      } catch (const std::exception&) {
        // It is gone.
      }
    }
  }
  /// −1 where it said nothing of this group.
  int culprit_of(int peer, std::uint64_t group) {
    const std::lock_guard lock(mutex_);
    hear(peer);
    const auto found = culprits_.find({peer, group});
    return found == culprits_.end() ? -1 : found->second;
  }

 private:
  static constexpr std::uint64_t kNeverSent = ~std::uint64_t{0}, kLastWords = kNeverSent - 1;  // no group has these slots

  struct Words {
    LastWords words;
    std::unique_ptr<Ticket> ticket;
  };

  std::unique_ptr<Ticket> ticket_for(Words& words, bool sends) {
    return std::make_unique<Ticket>(*context_, watchers_, nullptr, &words.words, sizeof(LastWords), sends);
  }
  void listen_to(int peer) {
    Words& next = heard_[peer];
    next.ticket = ticket_for(next, false);
    next.ticket->post(peer, kLastWords);
  }
  void hear(int peer) {
    Words& next = heard_.at(peer);
    if (!next.ticket || next.ticket->look() != Ticket::State::done) return;
    culprits_[{peer, next.words.group}] = static_cast<int>(next.words.culprit);
    try {
      listen_to(peer);
    } catch (const std::exception&) {
      next.ticket.reset();  // it has left since
    }
  }

  std::shared_ptr<Context> context_;
  Watchers watchers_;
  /// By peer. Gloo tells of a broken connection only some of the operations on it; a receive that nobody ever answers is always among them.
  std::map<int, std::unique_ptr<Ticket>> silent_;
  std::atomic<std::int64_t> groups_ = 0;  // that this rank led

  std::mutex mutex_;                                       // of what follows
  std::list<Words> said_;                                  // may still be on their way
  std::map<int, Words> heard_;                             // by peer: what comes next; without a ticket: nothing
  std::map<std::pair<int, std::uint64_t>, int> culprits_;  // by peer and group
};

/// A group of the mesh's ranks. Slots keep the groups' messages apart: they name the leader, the number among his groups, and the tag.
struct Members {
  static constexpr int kTagBits = 34, kNumberBits = 14;  // 16 are left for the leader

  std::shared_ptr<Mesh> mesh;
  std::vector<int> names;  // what the mesh calls the ranks of the group
  std::int64_t number;     // of the leader's groups
  const shared::Group& host;

  std::uint64_t slot(Tag tag) const {
    ensure(tag >> kTagBits == 0, "a tag fits into a slot");
    return id() << kTagBits | tag;
  }
  std::uint64_t id() const { return static_cast<std::uint64_t>(names.front()) << kNumberBits | static_cast<std::uint64_t>(number); }
  int culprit_of(int peer) const { return mesh->culprit_of(names[index(peer)], id()); }
  std::unique_ptr<Ticket> ticket(const void* data, std::int64_t bytes, bool sends) const {
    return std::make_unique<Ticket>(mesh->context(), mesh->watchers(), &host, const_cast<void*>(data), static_cast<std::size_t>(bytes),
                                    sends);
  }
  int rank() const { return static_cast<int>(std::find(names.begin(), names.end(), mesh->rank()) - names.begin()); }
};

class GlooWire final : public Wire {
 public:
  explicit GlooWire(const Members& members) : members_(members) {}

  /// Enough to fill a network, not so much that the ranks of a host together overrun the queue of a slow one.
  std::size_t window() const override { return 4; }
  std::unique_ptr<Transport::Request> send(int peer, Tag tag, const void* data, std::int64_t bytes) override {
    return std::make_unique<Request>(members_, peer, tag, members_.ticket(data, bytes, true), "send");
  }
  std::unique_ptr<Transport::Request> receive(int peer, Tag tag, void* data, std::int64_t room) override {
    return std::make_unique<Request>(members_, peer, tag, members_.ticket(data, room, false), "receive");
  }

 private:
  class Request final : public Transport::Request {
   public:
    Request(const Members& members, int peer, Tag tag, std::unique_ptr<Ticket> ticket, const char* operation)
        : members_(members), peer_(peer), operation_(operation), ticket_(std::move(ticket)) {
      try {
        ticket_->post(members.names[index(peer)], members.slot(tag));
      } catch (const gloo::Exception&) {
        fail();
      }
    }
    bool test() override {
      const Ticket::State state = ticket_->look();
      if (state == Ticket::State::broken) fail();
      return state == Ticket::State::done;
    }

   private:
    [[noreturn]] void fail() const {
      members_.mesh->await_break(members_.names[index(peer_)]);
      throw PeerError(peer_, operation_, 0, "is gone: its connection broke");
    }

    const Members& members_;
    int peer_;
    const char* operation_;
    std::unique_ptr<Ticket> ticket_;
  };

  const Members& members_;
};

class GlooNetwork final : public Network {
 public:
  explicit GlooNetwork(Members members) : members_(std::move(members)), wire_(members_), transport_(wire_, members_.rank()) {}

  Transport& transport() override { return transport_; }
  Nanoseconds patience() const override { return Nanoseconds::max(); }  // its threads ring

  std::string gone(int peer) override {
    return members_.mesh->is_broken(members_.names[index(peer)]) ? "is gone: its connection broke" : "";
  }
  void give_up(int culprit) override { members_.mesh->say({members_.id(), culprit}, members_.names); }
  int culprit_of(int peer) override { return members_.culprit_of(peer); }

  std::unique_ptr<Network> split(const std::vector<int>& members, Communicator& via, const shared::Group& host) override {
    Members group{.mesh = members_.mesh, .names = {}, .number = 0, .host = host};
    for (int member : members) group.names.push_back(members_.names[index(member)]);
    std::vector<std::int64_t> numbers(members_.names.size());
    if (group.rank() == 0) numbers[index(members_.rank())] = group.mesh->next_group();
    via.run(all_gather(numbers));
    group.number = numbers[index(members.front())];
    if (group.number >> Members::kNumberBits)
      throw Error(fmt::format("gloo: a rank can lead {} groups at most; keep communicators instead of splitting anew",
                              (1 << Members::kNumberBits) - 1));
    return std::make_unique<GlooNetwork>(std::move(group));
  }

 private:
  Members members_;
  GlooWire wire_;
  PieceTransport transport_;
};

/// Everybody hears what everybody listens at, so that all refuse together what can not work for one.
std::string agreed_address(const World& world, const Places& places, const shared::Exchange& exchange) {
  const bool several = std::set<int>(places.machines.begin(), places.machines.end()).size() > 1;
  std::string own = own_address(world.address, several);
  const std::vector<std::string> all = exchange(fmt::format("{} {}", own, host_name()));
  for (std::size_t rank = 0; rank < all.size() && several; ++rank) {
    const auto space = all[rank].find(' ');
    if (const std::string address = all[rank].substr(0, space); names_loopback(address))
      throw ConfigError(
          fmt::format("gloo: rank {} on host {} would listen at {}, which other hosts can not reach; set PACELINE_INTERFACE there, or "
                      "MASTER_ADDR to an address that is not loopback on any host",
                      rank, all[rank].substr(space + 1), address));
  }
  log::info("gloo: rank {} listens at {}", world.rank, own);
  return own;
}

}  // namespace

std::unique_ptr<Endpoint> connect_gloo(const CommConfig& config, const World& world, const std::shared_ptr<Store>& store) {
  const shared::Exchange exchange = exchange_through(store, world, "gloo", config.connect_deadline(world));
  return two_level("gloo", config, world, exchange, [&](const Places& places, const shared::Group& host) {
    const std::string address = agreed_address(world, places, exchange);
    Members everyone{.mesh = std::make_shared<Mesh>(world, places, address, exchange), .names = {}, .number = 0, .host = host};
    for (int rank = 0; rank < world.size; ++rank) everyone.names.push_back(rank);
    return std::make_unique<GlooNetwork>(std::move(everyone));
  });
}

}  // namespace paceline::comm
#endif
