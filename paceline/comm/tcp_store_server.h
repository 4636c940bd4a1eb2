// The server of a store of processes: one thread in rank 0, one poll(), a table of keys.
//
// It decides who is to blame for a failure (verdict.h): ranks beat to it, accuse one another, and hear its verdict.
//
// It also holds the ranks against one another as they arrive. Until the last of them is there, whatever makes the job impossible (a number
// given twice, another world size, a rank that leaves again) is told to everybody at once; afterwards whoever does not fit is sent away and
// the job does not notice. Strangers do not come this far (reception.h). Memory is bounded: a frame by kMaxFrame, what is stored by
// kMaxStored.
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
  /// `host` is the hello of rank 0 itself. `one_host`: the listener reaches this host alone, so nobody else can belong to the job.
  StoreServer(Socket listener, const std::string& key, wire::Hello host, bool one_host);
  /// Waits a moment for the clients to leave first: they may still be writing down what went wrong.
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

  // Of one connection. False: it is to be closed.
  bool receive(Connection& connection);
  bool send_pending(Connection& connection);
  bool handle(Connection& connection, std::string_view payload);
  bool greet(Connection& connection, std::string_view payload);
  void answer(Connection& connection, const wire::Request& request);
  std::string verdict() const;  // as Heartbeat reads it
  void settle_accusations();    // answers those whose culprit is certain

  wire::Reply objection(const wire::Hello& hello) const;
  wire::Reply change(const wire::Request& request);
  void fail_all(wire::Reply why);
  void release(const std::string& key);  // whoever waits for it
  wire::Reply late() const;              // names the ranks that are not there
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
  wire::Reply fault_;      // other than ok: the job cannot be, and why
  bool complete_ = false;  // all ranks have been there together
  Deadline news_;          // when to say how many have come

  std::mutex mutex_;  // guards the two below
  std::vector<Socket> arriving_;
  bool stop_ = false;
  std::thread thread_;                  // after what it uses
  std::optional<Reception> reception_;  // last: it brings guests to all of the above
};

}  // namespace paceline::comm
