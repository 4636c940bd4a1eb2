// Carries bytes between encrypted connections (tls.h) and the plain sockets of a program.
//
// gRPC cannot take over a connection that is to be encrypted, so it gets one end of a socket pair, and the relay has the other end and the
// connection. One thread, one poll(), and at most kRelayBuffer bytes per direction of a connection: if one side does not read, the other
// is not read from. A connection ends as a whole: when either side has closed, what it had sent is delivered, and both are closed.
//
// No wait is unbounded: a handshake has kTlsTime, the delivery of the last bytes kFarewell. In between a connection may be idle; gRPC and
// TCP find out whether its peer is still alive.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "paceline/comm/tls.h"

namespace paceline::comm {

inline constexpr std::size_t kRelayBuffer = 256 << 10;

class Relay {
 public:
  /// Both are called in the relay's thread, and must not block. `plain`: one end of a socket pair, which carries what the peer sends.
  using Admit = std::function<void(Socket plain)>;
  using Refuse = std::function<void(const std::string& why)>;

  Relay();
  ~Relay();  ///< briefly tries to deliver what closed sides have sent, then closes all connections
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// Performs the server's handshake, then carries the connection; a client that fails the handshake is refused.
  void receive(TlsSession session, Socket network, Admit admit, Refuse refuse);
  /// Carries a connection whose handshake is over; returns its plain end. Throws std::system_error.
  Socket carry(TlsSession session, Socket network);

  std::size_t size() const { return size_; }  ///< connections that it has now

 private:
  struct Passage;

  void add(std::unique_ptr<Passage> passage);
  void serve();
  void take_new();
  int next_timeout_ms() const;

  const Socket wake_;
  std::atomic<std::size_t> size_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Passage>> new_;
  std::list<std::unique_ptr<Passage>> passages_;  // only the thread uses them
  std::thread thread_;                            // last: it uses all of the above
};

}  // namespace paceline::comm
