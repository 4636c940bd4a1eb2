// Ranks on their way to a store, for tests.
#pragma once

#include <netinet/in.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "paceline/base/error.h"
#include "paceline/comm/engines/address.h"
#include "paceline/comm/sockets.h"
#include "paceline/comm/tcp_store.h"
#include "paceline/comm/world.h"

namespace paceline::comm {

inline constexpr Nanoseconds kLong = std::chrono::seconds(20);  // no test waits so long unless something is broken

/// Ports that are free: bound once to be told, then let go.
inline int free_port() {
  const Socket socket = listen_at(tcp_address("127.0.0.1", 0));
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

inline std::string fresh_job() {
  static std::atomic<int> count{0};
  return "store_test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
}

inline World world_of(int rank, int size, int port, const std::string& job = "job") {
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  world.address = "127.0.0.1";
  world.port = port;
  world.job = job;
  world.source = port == 0 ? "paceline run" : "torchrun";
  return world;
}

/// One rank's way to a store over TCP on loopback, as between hosts.
inline StoreJob tcp_job(int rank, int size, int port, const std::string& key = "job", int more_ports = 0) {
  static std::atomic<std::uint64_t> instances{1};
  StoreJob job{{rank, size, ::getpid(), instances++, host_id(), "host", size}, key, {}};
  for (int i = 0; i <= more_ports; ++i) job.candidates.push_back(tcp_address("127.0.0.1", port + i));
  return job;
}

inline std::shared_ptr<Store> open_store(const World& world, Nanoseconds deadline) { return connect_store(world, deadline); }
inline std::shared_ptr<Store> open_store(const StoreJob& job, Nanoseconds deadline) {
  return job.hello.rank == 0 ? serve_store(job, deadline) : reach_store(job, deadline);
}

inline void on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

/// What each of these says, started together; empty where all is well. "config: " or "peer N: " in front.
template <class Way>
std::vector<std::string> outcomes_of(const std::vector<Way>& ways, Nanoseconds deadline) {
  std::vector<std::string> said(ways.size());
  on_threads(static_cast<int>(ways.size()), [&](int i) {
    const auto index = static_cast<std::size_t>(i);
    try {
      open_store(ways[index], deadline);
    } catch (const ConfigError& error) {
      said[index] = std::string("config: ") + error.what();
    } catch (const PeerError& error) {
      said[index] = "peer " + std::to_string(error.rank()) + ": " + error.what();
    }
  });
  return said;
}
inline std::vector<std::string> outcomes(const std::vector<World>& worlds, Nanoseconds deadline = kLong) {
  return outcomes_of(worlds, deadline);
}
inline std::vector<std::string> tcp_outcomes(const std::vector<StoreJob>& jobs, Nanoseconds deadline = kLong) {
  return outcomes_of(jobs, deadline);
}

}  // namespace paceline::comm
