// Tells the store's server a few times a second that this process is alive, and learns which rank was lost (verdict.h). If the server
// itself is silent, rank 0, which runs it, is lost.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "paceline/comm/sockets.h"
#include "paceline/comm/verdict.h"

namespace paceline::comm {

class Heartbeat {
 public:
  /// `socket`: a connection to the server that nothing else uses. `limit`: how long any rank may be silent; 0: forever.
  Heartbeat(Socket socket, Nanoseconds limit);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  std::optional<Loss> loss() const;
  /// The last culprit that was found, for callers that can no longer ask the server.
  std::optional<int> cause() const;

  /// Records a verdict of the server, which may also come with answers to other requests.
  void hear(const std::string& text);

 private:
  void run();
  void exchange_beats();
  void lose(const Loss& loss);

  Socket socket_, wake_;
  const Nanoseconds limit_, interval_;
  std::atomic<bool> closing_ = false;
  std::atomic<int> lost_ = -1, cause_ = -1;  // ranks; −1: none
  std::atomic<std::int64_t> silent_{0};      // ns, of the lost rank
  std::thread thread_;                       // last: it uses all of the above
};

}  // namespace paceline::comm
