// gloo: processes on several hosts without MPI. Gloo's TCP transport carries messages between hosts; none of Gloo's own collectives is
// used.
//
// Invariant: a rank that has finished may exit without waiting for the others. By then the system has everything that it sent, and no peer
// sends it anything more, not even a liveness probe: the reset that answers it would discard data that is still on its way.
#if PACELINE_WITH_GLOO
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gloo/common/error.h>

#include "paceline/base/host.h"
#include "paceline/base/log.h"
#include "paceline/comm/engines/address.h"
#include "paceline/comm/engines/common.h"
#include "paceline/comm/engines/gloo_connections.h"
#include "paceline/comm/engines/piece_transport.h"

namespace paceline::comm {
namespace {

using over_gloo::Connections;
using over_gloo::Ticket;

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

/// A group of the connected ranks. Slots keep the groups' messages apart: they name the leader, the number among its groups, and the tag.
struct Members {
  static constexpr int kTagBits = 34, kNumberBits = 14;  // leaves 16 bits for the leader

  std::shared_ptr<Connections> connections;
  std::vector<int> names;  // the ranks of the group, as the connections number them
  std::int64_t number;     // counts the groups of this leader
  const shared::Group& host;

  std::uint64_t slot(Tag tag) const {
    ensure(tag >> kTagBits == 0, "a tag fits into a slot");
    return id() << kTagBits | tag;
  }
  std::uint64_t id() const { return static_cast<std::uint64_t>(names.front()) << kNumberBits | static_cast<std::uint64_t>(number); }
  int culprit_of(int peer) const { return connections->culprit_of(names[index(peer)], id()); }
  std::unique_ptr<Ticket> ticket(const void* data, std::int64_t bytes, bool sends) const {
    return std::make_unique<Ticket>(connections->context(), connections->watchers(), &host, const_cast<void*>(data),
                                    static_cast<std::size_t>(bytes), sends);
  }
  int rank() const { return static_cast<int>(std::find(names.begin(), names.end(), connections->rank()) - names.begin()); }
};

class GlooWire final : public Wire {
 public:
  explicit GlooWire(const Members& members) : members_(members) {}

  /// Enough to saturate a network, but not so much that the ranks of a host together overrun the queue of a slow one.
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
      members_.connections->await_break(members_.names[index(peer_)]);
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
  Nanoseconds patience() const override { return Nanoseconds::max(); }  // its threads ring the bell

  std::string gone(int peer) override {
    return members_.connections->is_broken(members_.names[index(peer)]) ? "is gone: its connection broke" : "";
  }
  void give_up(int culprit) override { members_.connections->say({members_.id(), culprit}, members_.names); }
  int culprit_of(int peer) override { return members_.culprit_of(peer); }

  std::unique_ptr<Network> split(const std::vector<int>& members, Communicator& via, const shared::Group& host) override {
    Members group{.connections = members_.connections, .names = {}, .number = 0, .host = host};
    for (int member : members) group.names.push_back(members_.names[index(member)]);
    std::vector<std::int64_t> numbers(members_.names.size());
    if (group.rank() == 0) numbers[index(members_.rank())] = group.connections->next_group();
    via.run(all_gather(numbers));
    group.number = numbers[index(members.front())];
    if (group.number >> Members::kNumberBits)
      throw Error(fmt::format("gloo: a rank can lead at most {} groups; keep communicators instead of splitting again",
                              (1 << Members::kNumberBits) - 1));
    return std::make_unique<GlooNetwork>(std::move(group));
  }

 private:
  Members members_;
  GlooWire wire_;
  PieceTransport transport_;
};

/// All ranks learn all listening addresses, so that all refuse together a setup that cannot work for one of them.
std::string agreed_address(const World& world, const Places& places, const shared::Exchange& exchange) {
  const bool several = std::set<int>(places.machines.begin(), places.machines.end()).size() > 1;
  std::string own = own_address(world.address, several);
  const std::vector<std::string> all = exchange(fmt::format("{} {}", own, host_name()));
  for (std::size_t rank = 0; rank < all.size() && several; ++rank) {
    const auto space = all[rank].find(' ');
    if (const std::string address = all[rank].substr(0, space); names_loopback(address))
      throw ConfigError(
          fmt::format("gloo: rank {} on host {} would listen at {}, which other hosts cannot reach; set PACELINE_INTERFACE there, or "
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
    Members everyone{
        .connections = std::make_shared<Connections>(world, places, address, exchange), .names = {}, .number = 0, .host = host};
    for (int rank = 0; rank < world.size; ++rank) everyone.names.push_back(rank);
    return std::make_unique<GlooNetwork>(std::move(everyone));
  });
}

}  // namespace paceline::comm
#endif
