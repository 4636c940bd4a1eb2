// The sender holds a message back until it would have left the link, then passes it to the engine, which costs next to nothing in
// comparison. What a host sends leaves it in order, at the link's rate; the ranks of a host share that rate evenly.
//
// Invariant: messages to one peer leave in the order in which they were sent; a randomly delayed one holds up those behind it.
#include <algorithm>
#include <atomic>
#include <deque>
#include <limits>

#include "paceline/base/random.h"
#include "paceline/comm/decorators/decorators.h"

namespace paceline::comm {
namespace {

Nanoseconds from_seconds(double value) { return Nanoseconds(static_cast<std::int64_t>(value * 1e9)); }

/// When messages leave, and when the next one is due, so that a sleeping thread knows when to wake.
class Gate {
 public:
  Gate(const Link& link, int rank, int sharers)
      : link_(link), sharers_(sharers), chance_(link.seed, Purpose::delay, static_cast<std::uint64_t>(rank)) {}

  Nanoseconds depart(std::int64_t bytes) {
    if (link_.bytes_per_s > 0) {
      free_ = std::max(free_, SteadyClock().now()) + from_seconds(static_cast<double>(bytes) * sharers_ / link_.bytes_per_s);
    } else {
      free_ = SteadyClock().now();
    }
    return free_ + from_seconds(link_.latency_s + link_.jitter_s * chance_.uniform_double());
  }
  void held(Nanoseconds until) {
    if (until.count() < due_.load()) due_.store(until.count());
  }
  /// The time until the next message is due, at most `at_most`; asked once before sleeping. Messages still held then register again.
  Nanoseconds patience(Nanoseconds at_most) {
    const std::int64_t due = due_.exchange(kNever);
    return due == kNever ? at_most : std::clamp(Nanoseconds(due) - SteadyClock().now(), Nanoseconds(0), at_most);
  }

 private:
  Link link_;
  int sharers_;
  RandomStream chance_;
  Nanoseconds free_{0};
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> due_ = kNever;  // the only word that a sleeping thread reads while others send
};

class Held final : public Transport::Request {
 public:
  using Queue = std::deque<Held*>;  // messages to one peer that have not left yet

  Held(Transport& inner, Gate& gate, Queue& queue, int peer, Tag tag, const void* data, std::int64_t bytes)
      : inner_(inner), gate_(gate), queue_(queue), peer_(peer), tag_(tag), data_(data), bytes_(bytes), leaves_(gate.depart(bytes)) {
    queue_.push_back(this);
  }
  ~Held() override {
    if (!sent_) std::erase(queue_, this);
  }

  bool test() override {
    while (!sent_ && queue_.front()->leave()) queue_.pop_front();
    return sent_ && sent_->test();
  }

 private:
  bool leave() {
    if (SteadyClock().now() < leaves_) return gate_.held(leaves_), false;
    sent_ = inner_.send(peer_, tag_, data_, bytes_);
    return true;
  }

  Transport& inner_;
  Gate& gate_;
  Queue& queue_;
  int peer_;
  Tag tag_;
  const void* data_;
  std::int64_t bytes_;
  Nanoseconds leaves_;
  std::unique_ptr<Request> sent_;
};

class Shape final : public Endpoint, public Transport, public Waiter {
 public:
  Shape(std::unique_ptr<Endpoint> inner, const Link& link)
      : inner_(std::move(inner)),
        link_(link),
        gate_(link, inner_->rank(), static_cast<int>(std::ranges::count(hosts(), host_of(rank())))),
        queues_(static_cast<std::size_t>(inner_->size())) {}

  std::string engine() const override { return inner_->engine(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::vector<int>& hosts() const override { return inner_->hosts(); }
  Transport& transport() override { return *this; }
  Waiter& waiter() override { return *this; }
  shared::Group* host_group() override { return inner_->host_group(); }
  std::unique_ptr<Endpoint> split(const std::vector<int>& members, Communicator& via) override {
    return shape(inner_->split(members, via), link_);
  }
  Memory allocate(std::int64_t bytes) override { return inner_->allocate(bytes); }

  std::unique_ptr<Request> send(int peer, Tag tag, const void* data, std::int64_t bytes) override {
    if (host_of(peer) == host_of(rank())) return inner_->transport().send(peer, tag, data, bytes);
    return std::make_unique<Held>(inner_->transport(), gate_, queues_[static_cast<std::size_t>(peer)], peer, tag, data, bytes);
  }
  std::unique_ptr<Request> receive(int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival) override {
    return inner_->transport().receive(peer, tag, data, bytes, arrival);
  }

  int spins() const override { return inner_->waiter().spins(); }
  bool has_core_for_helper() const override { return inner_->waiter().has_core_for_helper(); }
  void announce(Sleeper sleeper) override { inner_->waiter().announce(sleeper); }
  void retract(Sleeper sleeper) override { inner_->waiter().retract(sleeper); }
  std::uint32_t bell(Sleeper sleeper) override { return inner_->waiter().bell(sleeper); }
  void sleep(Sleeper sleeper, std::uint32_t heard, Nanoseconds at_most) override { inner_->waiter().sleep(sleeper, heard, at_most); }
  void wake(Sleeper sleeper) override { inner_->waiter().wake(sleeper); }
  void wake_helpers() override { inner_->waiter().wake_helpers(); }
  Nanoseconds patience() override { return gate_.patience(inner_->waiter().patience()); }
  std::string gone(int peer) override { return inner_->waiter().gone(peer); }
  void give_up(int culprit) override { inner_->waiter().give_up(culprit); }
  int culprit_of(int peer) override { return inner_->waiter().culprit_of(peer); }

 private:
  int host_of(int peer) const { return hosts()[static_cast<std::size_t>(peer)]; }

  std::unique_ptr<Endpoint> inner_;
  Link link_;
  Gate gate_;
  std::vector<Held::Queue> queues_;  // by peer
};

}  // namespace

std::unique_ptr<Endpoint> shape(std::unique_ptr<Endpoint> inner, const Link& link) {
  return std::make_unique<Shape>(std::move(inner), link);
}

}  // namespace paceline::comm
