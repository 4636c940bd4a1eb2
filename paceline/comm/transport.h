// Messages between two ranks: what an engine must be able to do so that every schedule runs on it.
//
// Nothing here blocks. A message goes to the earliest receive that was posted for its sender and tag; messages of one tag keep their order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "paceline/base/clock.h"
#include "paceline/comm/dtype.h"

namespace paceline::comm {

using Tag = std::uint64_t;

/// How arriving elements are put in place: written over, or reduced into what is there.
struct Arrival {
  bool reduces = false;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
};

class Transport {
 public:
  /// A message on its way. Gone before it is done, the engine forgets it.
  class Request {
   public:
    virtual ~Request() = default;
    /// True once the memory belongs to the caller again. Throws PeerError where the engine knows that the peer is gone.
    virtual bool test() = 0;
  };

  virtual ~Transport() = default;
  virtual std::unique_ptr<Request> send(int peer, Tag tag, const void* data, std::int64_t bytes) = 0;
  virtual std::unique_ptr<Request> receive(int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival) = 0;
};

/// How an engine waits for something to change.
class Waiter {
 public:
  virtual ~Waiter() = default;
  /// How often to look again before sleeping; 0 where ranks share cores.
  virtual int spins() const = 0;
  /// Says "I am about to sleep"; whoever changes something after this wakes the sleeper.
  virtual std::uint32_t announce() = 0;
  /// Sleeps until woken or for a short while; takes the announcement back.
  virtual void sleep(std::uint32_t announced, Nanoseconds at_most) = 0;
  /// Takes the announcement back without sleeping.
  virtual void retract() = 0;
  /// Wakes this rank's own sleepers.
  virtual void wake() = 0;
  /// Whether this peer is known to be gone, and how that is known ("its process ended"); empty while it lives. Asked a few times a second.
  virtual std::string gone(int peer) = 0;
};

}  // namespace paceline::comm
