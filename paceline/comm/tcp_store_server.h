// The server of a store of processes: one thread in rank 0, one poll(), a table of keys.
//
// It decides who is to blame for a failure (verdict.h): ranks send it heartbeats and accusations, and receive its verdict.
//
// It also checks the ranks against one another as they arrive. Until the last one is there, whatever makes the job impossible (a rank
// number used twice, another world size, a rank that leaves again) is reported to all at once; after that, a process that does not fit is
// turned away and the job does not notice. Strangers do not get this far (reception.h). Memory is bounded: a frame by kMaxFrame, what is
// stored by kMaxStored.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "paceline/comm/reception.h"
#include "paceline/comm/sockets.h"
#include "paceline/comm/store.h"
#include "paceline/comm/tcp_store_wire.h"

namespace paceline::comm {

class StoreServer {
 public:
  /// `host` is the hello of rank 0 itself. `one_host`: only this host can reach the listener, so no other host can belong to the job.
  StoreServer(Socket listener, const std::string& key, wire::Hello host, bool one_host);
  /// Waits a moment for the clients to leave first: they may still be reporting what went wrong.
  ~StoreServer();

  /// A connection from within the process.
  Socket connect();

 private:
  struct Connection;
  struct Peer {
    wire::Hello hello;
    int connections = 0;
  };

  void serve();
  void poll_once(int timeout_ms);
  int next_timeout_ms() const;
  void admit(Socket socket);
  void expire();
  void excuse_busy();
  void drop_closed();

  // For one connection. False: it must be closed.
  bool receive(Connection& connection);
  bool send_pending(Connection& connection);
  bool handle(Connection& connection, std::string_view payload);
  bool greet(Connection& connection, std::string_view payload);
  void answer(Connection& connection, const wire::Request& request);
  std::string verdict() const;  // as Heartbeat reads it
  void settle_accusations();    // answers the accusations whose culprit is certain

  wire::Reply objection(const wire::Hello& hello) const;
  wire::Reply change(const wire::Request& request);
  void fail_all(wire::Reply why);
  void release(const std::string& key);  // answers the clients that wait for it
  wire::Reply late() const;              // names the ranks that are missing
  bool is_gathering() const { return !complete_ && fault_.status == wire::Reply::Status::ok; }

  void arrive(Socket socket);  // from any thread

  Socket wake_;
  const wire::Hello host_;
  const bool one_host_;

  std::vector<Connection> connections_;
  std::map<int, Peer> peers_;
  std::shared_ptr<Store> values_ = memory_store();
  std::size_t stored_bytes_ = 0;
  Silence silence_;
  Accusations accusations_;
  int cause_ = -1;         // the last culprit that was found
  wire::Reply fault_;      // other than ok: why the job is impossible
  bool complete_ = false;  // all ranks have been connected at the same time
  Deadline news_;          // when to log how many have connected

  std::mutex mutex_;  // guards the two below
  std::vector<Socket> arriving_;
  bool stop_ = false;
  std::thread thread_;                  // after what it uses
  std::optional<Reception> reception_;  // last: it brings guests to all of the above
};

}  // namespace paceline::comm
