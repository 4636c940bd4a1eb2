// Accepts connections at a listener, and admits those whose peer proves that it knows the job's key (handshake.h).
//
// One thread, one poll(). What strangers can take is bounded: kMaxGuests connections that have not proved anything yet, with a few hundred
// bytes and kGuestTime each. When there are too many, the oldest is dropped inside the accept loop, so that a flood holds no descriptors.
// It has had kGrace by then, so that a peer of ours still gets through over a slow link; the others wait in the system's queue.
// A refusal costs one line in the log, and a flood one line per second.
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
  /// Called with a connection whose peer has proved itself, in the reception's thread, so it must not block. `peer`: its address.
  using Admit = std::function<void(Socket socket, const std::string& peer)>;

  /// A kind of connection that clients may confuse with this reception's. A client that knows the key and makes that mistake is refused
  /// with `why`.
  struct Mistake {
    std::string_view purpose;  // empty: no such mistake is possible
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
  bool accept_some();  // true: others are waiting, and may wait a moment longer
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
  Deadline breath_;          // until then,
  int taken_ = 0;            // this many were accepted
  Refusals refusals_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace paceline::comm
