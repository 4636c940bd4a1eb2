#include "paceline/comm/engines/two_level.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "paceline/comm/shared/mailbox.h"
#include "paceline/comm/shared/shared_endpoint.h"

namespace paceline::comm {
namespace {

using shared::Group;
using shared::HostMemory;
using shared::Location;
using shared::picked;

int at(const std::vector<int>& values, int index) { return values[static_cast<std::size_t>(index)]; }

/// A group of ranks: which of them are this rank's neighbours on its host, and their numbers in each of the groups involved.
struct Membership {
  std::string engine;
  int rank = 0;
  int cores = 0;  // of all ranks of this machine together
  Places places;
  std::vector<int> memory_ranks;  // by rank: its number in the machine's memory; −1 on other machines

  std::vector<int> neighbours() const {
    std::vector<int> ranks;
    for (int peer = 0; peer < size(); ++peer)
      if (at(places.hosts, peer) == at(places.hosts, rank)) ranks.push_back(peer);
    return ranks;
  }
  /// By rank: its index among the neighbours; −1 on other hosts.
  std::vector<int> seats() const {
    std::vector<int> seats(places.hosts.size(), -1);
    int next = 0;
    for (int peer : neighbours()) seats[static_cast<std::size_t>(peer)] = next++;
    return seats;
  }
  int size() const { return static_cast<int>(places.hosts.size()); }
  /// Whether each rank of this machine has this many cores.
  bool has_cores(int each) const {
    const auto sharing = std::count(places.machines.begin(), places.machines.end(), at(places.machines, rank));
    return each * sharing <= cores;
  }
};

/// Sends a location to all ranks of a group, and returns everyone's.
using Tell = std::function<std::vector<Location>(Location own)>;

/// The neighbours as a group. The first of them provides the block.
std::unique_ptr<Group> meet_host(const Membership& membership, const std::shared_ptr<HostMemory>& memory, const Tell& tell) {
  const std::vector<int> ranks = membership.neighbours();
  Location block;
  const auto count = static_cast<int>(ranks.size());
  if (ranks.front() == membership.rank) block = memory->allocate_block(shared::Block::bytes(count), count);
  block = tell(block)[static_cast<std::size_t>(ranks.front())];
  return std::make_unique<Group>(at(membership.seats(), membership.rank), picked(membership.memory_ranks, ranks), membership.cores, memory,
                                 memory->address(block));
}

/// Messages to neighbours go through memory, others over the network.
class Fork final : public Transport {
 public:
  Fork(Group& host, std::vector<int> seats, Network* network) : mailbox_(host), seats_(std::move(seats)), network_(network) {}

  std::unique_ptr<Request> send(int peer, Tag tag, const void* data, std::int64_t bytes) override {
    const int seat = at(seats_, peer);
    return seat < 0 ? network_->transport().send(peer, tag, data, bytes) : mailbox_.send(seat, tag, data, bytes);
  }
  std::unique_ptr<Request> receive(int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival) override {
    const int seat = at(seats_, peer);
    return seat < 0 ? network_->transport().receive(peer, tag, data, bytes, arrival) : mailbox_.receive(seat, tag, data, bytes, arrival);
  }

 private:
  shared::Mailbox mailbox_;
  std::vector<int> seats_;
  Network* network_;
};

/// Sleeps where the neighbours can wake it, for as long as the network needs no attention.
class ForkWaiter final : public Waiter {
 public:
  ForkWaiter(Group& host, const Membership& membership, Network* network)
      : host_(host),
        seats_(membership.seats()),
        network_(network),
        spins_(membership.has_cores(1) ? host.spins() : 0),
        has_core_for_helper_(membership.has_cores(2)) {
    if (network) host.keep_helpers_awake();
  }

  int spins() const override { return spins_; }
  bool has_core_for_helper() const override { return has_core_for_helper_; }
  void announce(Sleeper sleeper) override { host_.announce(sleeper); }
  void retract(Sleeper sleeper) override { host_.retract(sleeper); }
  std::uint32_t bell(Sleeper sleeper) override { return host_.bell(sleeper); }
  void sleep(Sleeper sleeper, std::uint32_t heard, Nanoseconds at_most) override { host_.sleep(sleeper, heard, at_most); }
  void wake(Sleeper sleeper) override { host_.wake(sleeper); }
  void wake_helpers() override { host_.wake_helpers(); }
  Nanoseconds patience() override { return network_ ? network_->patience() : Nanoseconds::max(); }
  std::string gone(int peer) override {
    const int seat = at(seats_, peer);
    return seat < 0 ? network_->gone(peer) : host_.gone(seat);
  }
  void give_up(int culprit) override {
    host_.give_up(culprit);
    if (network_) network_->give_up(culprit);
  }
  int culprit_of(int peer) override {
    const int seat = at(seats_, peer);
    return seat < 0 ? network_->culprit_of(peer) : host_.culprit_of(seat);
  }

 private:
  Group& host_;
  std::vector<int> seats_;
  Network* network_;
  int spins_;
  bool has_core_for_helper_;
};

class TwoLevelEndpoint final : public Endpoint {
 public:
  TwoLevelEndpoint(Membership membership, std::unique_ptr<Group> host, std::unique_ptr<Network> network)
      : membership_(std::move(membership)),
        host_(std::move(host)),
        network_(std::move(network)),
        transport_(*host_, membership_.seats(), network_.get()),
        waiter_(*host_, membership_, network_.get()) {}

  std::string engine() const override { return membership_.engine; }
  int rank() const override { return membership_.rank; }
  int size() const override { return membership_.size(); }
  const std::vector<int>& hosts() const override { return membership_.places.hosts; }
  Transport& transport() override { return transport_; }
  Waiter& waiter() override { return waiter_; }
  Group* host_group() override { return host_.get(); }
  Memory allocate(std::int64_t bytes) override { return host_->host().allocate(bytes); }
  std::unique_ptr<Endpoint> split(const std::vector<int>& members, Communicator& via) override;

 private:
  Membership membership_;
  std::unique_ptr<Group> host_;
  std::unique_ptr<Network> network_;  // null if all ranks are on one host
  Fork transport_;
  ForkWaiter waiter_;
};

std::unique_ptr<Endpoint> TwoLevelEndpoint::split(const std::vector<int>& members, Communicator& via) {
  const int place = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  Membership membership{membership_.engine,
                        place,
                        membership_.cores,
                        {picked(membership_.places.machines, members), picked(membership_.places.hosts, members)},
                        picked(membership_.memory_ranks, members)};
  const Tell tell = [&](Location own) {
    std::vector<std::int64_t> words(static_cast<std::size_t>(2 * size()));
    const auto word = [&](int peer) { return words.data() + 2 * peer; };
    word(rank())[0] = static_cast<std::int64_t>(own.file), word(rank())[1] = static_cast<std::int64_t>(own.offset);
    via.run(all_gather(words));
    std::vector<Location> all;
    all.reserve(members.size());
    for (int member : members) all.push_back({static_cast<std::uint64_t>(word(member)[0]), static_cast<std::uint64_t>(word(member)[1])});
    return all;
  };
  auto host = meet_host(membership, host_->shared_host(), tell);
  auto network = network_ ? network_->split(members, via, *host) : nullptr;
  return std::make_unique<TwoLevelEndpoint>(std::move(membership), std::move(host), std::move(network));
}

}  // namespace

std::unique_ptr<Endpoint> two_level(const std::string& engine, const CommConfig& config, const World& world,
                                    const shared::Exchange& exchange, const ConnectNetwork& connect) {
  const shared::Neighbours found = shared::meet_neighbours(world.rank, exchange, [](int) { return 0; });
  Membership membership{
      engine, world.rank, world.cores, {found.hosts, found.hosts}, std::vector<int>(static_cast<std::size_t>(world.size), -1)};
  // An emulated host never extends beyond its machine.
  const std::vector<int> emulated = shared::emulated_hosts(world.size, config.per_host);
  for (int peer = 0; peer < world.size; ++peer) membership.places.hosts[static_cast<std::size_t>(peer)] += world.size * at(emulated, peer);
  for (std::size_t place = 0; place < found.ranks.size(); ++place)
    membership.memory_ranks[static_cast<std::size_t>(found.ranks[place])] = static_cast<int>(place);

  const Tell tell = [&](Location own) {
    std::vector<Location> all;
    for (const std::string& text : exchange(fmt::format("{} {}", own.file, own.offset))) {
      Location location;
      std::istringstream(text) >> location.file >> location.offset;
      all.push_back(location);
    }
    return all;
  };
  auto host = meet_host(membership, found.memory, tell);
  auto network = host->size() == world.size ? nullptr : connect(membership.places, *host);
  return std::make_unique<TwoLevelEndpoint>(std::move(membership), std::move(host), std::move(network));
}

}  // namespace paceline::comm
