// Ranks of several hosts: shared memory within a host, a network library between hosts.
#pragma once

#include "paceline/comm/engines/all.h"
#include "paceline/comm/shared/process_memory.h"

namespace paceline::comm {

/// Where each rank is. When a cluster is emulated, two ranks of one machine may count as different hosts; they then communicate over the
/// network.
struct Places {
  std::vector<int> machines, hosts;  // by rank
};

/// A network library's group of ranks.
class Network {
 public:
  virtual ~Network() = default;
  virtual Transport& transport() = 0;
  /// How long its requests need no attention.
  virtual Nanoseconds patience() const = 0;
  /// Like Waiter::gone(), for a rank of another host.
  virtual std::string gone(int peer) = 0;
  /// Like those of Waiter, to and from ranks of other hosts. A network that cannot tell relies on deadlines.
  virtual void give_up(int) {}
  virtual int culprit_of(int) { return -1; }
  /// The network of `members`, like Endpoint::split(). `host` has this rank's neighbours among them.
  virtual std::unique_ptr<Network> split(const std::vector<int>& members, Communicator& via, const shared::Group& host) = 0;
};

/// Connects to the ranks of other hosts. A network with threads of its own rings this rank's bell in `host` when something changes.
using ConnectNetwork = std::function<std::unique_ptr<Network>(const Places& places, const shared::Group& host)>;

/// The endpoint of this process. `connect` is called if there is more than one host. Collective.
std::unique_ptr<Endpoint> two_level(const std::string& engine, const CommConfig& config, const World& world,
                                    const shared::Exchange& exchange, const ConnectNetwork& connect);

}  // namespace paceline::comm
