// Takes connections at a listener, and lets in those whose peer proves that it knows the job's key (handshake.h).
//
// One thread, one poll(). What a stranger can take is bounded: kMaxGuests connections that have not proved anything yet, a few hundred
// bytes and kGuestTime each. When they are too many the oldest leaves, inside the accept loop, so that a flood holds no descriptors. It has
// had kGrace by then, so that a peer of ours, which needs as long as its link, still gets through; the others wait in the system's queue.
// Whoever is refused costs one line in the log, and a flood one line a second.
#pragma once

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <thread>

#include "paceline/comm/handshake.h"
#include "paceline/comm/sockets.h"

namespace paceline::comm {

class Reception {
 public:
  /// Gets a connection whose peer has proved itself; called in the reception's thread, so it must not block. `peer`: its address.
  using Admit = std::function<void(Socket socket, const std::string& peer)>;

  /// Connections that clients may take for those of this reception. Who knows the key and makes that mistake is told, and refused with
  /// `why`.
  struct Mistake {
    std::string_view purpose;  // none: no such mistake
    const char* why;
  };

  Reception(Socket listener, std::string key, std::string_view purpose, Admit admit, Mistake mistake = {});
  ~Reception();
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

 private:
  struct Guest;
  /// Refusals since the last line about one.
  struct Refusals {
    int unsaid = 0;
    std::optional<Deadline> quiet;
    void note(const std::string& peer, const char* why);
  };

  void serve();
  bool accept_some();  // true: others wait, and may for a moment
  void take_in(Socket socket, std::string peer);
  void hear(Guest& guest);
  void refuse(Guest& guest);
  void drop(Guest& guest, const char* why);
  int next_timeout_ms() const;

  const Socket listener_, stop_;
  const std::string key_;
  const std::string_view purpose_;
  const Admit admit_;
  const Mistake mistake_;
  std::list<Guest> guests_;  // oldest first
  Deadline breath_;          // until then …
  int taken_ = 0;            // … so many were taken
  Refusals refusals_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace paceline::comm
