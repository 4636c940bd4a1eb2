// The store of a world of processes, over TCP or an abstract unix socket: rank 0 serves it (tcp_store_server.h), all ranks are clients.
// connect_store() of world.h chooses the endpoints; these two open the store at them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "paceline/comm/sockets.h"
#include "paceline/comm/store.h"
#include "paceline/comm/tcp_store_wire.h"

namespace paceline::comm {

/// Who opens the store, for which job, and where: candidates in the order in which they are tried. `elsewhere` is where a rank 0 on this
/// host would listen if it was configured with different hosts; it is tried if no candidate answers, to detect that mistake.
struct StoreJob {
  wire::Hello hello;
  std::string key;
  std::vector<SocketAddress> candidates;
  std::function<std::vector<SocketAddress>()> elsewhere = [] { return std::vector<SocketAddress>(); };
};

/// Both return once all ranks have connected, or throw: ConfigError if the ranks disagree about the job or a port is in use, PeerError if a
/// rank has not connected by the deadline.
std::shared_ptr<Store> serve_store(const StoreJob& job, Nanoseconds deadline);
std::shared_ptr<Store> reach_store(const StoreJob& job, Nanoseconds deadline);

/// Receives a reply that arrives by the deadline; std::system_error otherwise.
wire::Reply receive_reply(const Socket& socket, const Deadline& deadline);

}  // namespace paceline::comm
