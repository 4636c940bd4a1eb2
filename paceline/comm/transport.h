// Messages between two ranks: what an engine must be able to do so that every schedule runs on it.
//
// Nothing here blocks. A message goes to the earliest receive that was posted for its sender and tag; messages of one tag keep their order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "paceline/base/clock.h"
#include "paceline/base/error.h"
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

/// Who of a rank sleeps: somebody who waits for an operation, or the helper that drives operations while their callers go on. Each has a
/// bell of his own, so that the helper sleeps on while a caller drives.
enum class Sleeper : std::uint8_t { caller, helper };

/// How an engine waits for something to change. Bells are heard only where somebody announced himself, so that ringing costs nothing while
/// everybody is awake:
///
///   announce(me); const auto heard = bell(me); look; sleep(me, heard, …); retract(me);
///
/// Whatever changes before the look is seen by it, and whatever changes after it rings. Who sleeps with no announcement, his own or
/// somebody else's in his name, is woken by wake() alone.
class Waiter {
 public:
  virtual ~Waiter() = default;
  /// How often to look again before sleeping; 0 where ranks share cores.
  virtual int spins() const = 0;
  /// Whether every rank of this machine has a second core, for its helper.
  virtual bool has_core_for_helper() const = 0;
  virtual void announce(Sleeper sleeper) = 0;
  virtual void retract(Sleeper sleeper) = 0;
  /// How often it has rung.
  virtual std::uint32_t bell(Sleeper sleeper) = 0;
  /// Until the bell has rung more often than `heard`, at most so long.
  virtual void sleep(Sleeper sleeper, std::uint32_t heard, Nanoseconds at_most) = 0;
  /// Rings this rank's own bell.
  virtual void wake(Sleeper sleeper) = 0;
  /// Rings the others' helpers that are announced: whoever is about to sleep may be waiting for what they have to do.
  virtual void wake_helpers() = 0;
  /// For how long from now nobody needs to look unless a bell rings. Asked after a look, before sleeping.
  virtual Nanoseconds patience() = 0;
  /// Whether this peer is known to be gone, and how that is known ("its process ended", or kLeft); empty while it lives. Asked a few times
  /// a second.
  virtual std::string gone(int peer) = 0;
  /// Tells the others that nothing more comes from this rank, because of a rank of the run (judge.h) that may be itself. Somebody who waits
  /// for this one would else learn of it only when it leaves, and it may compute for long before that.
  virtual void give_up(int culprit) = 0;
  /// The rank of the run because of which this peer gave up; −1 where it is not known to have. Final once it is gone.
  virtual int culprit_of(int peer) = 0;
};

/// Of a peer that closed its communicator, rather than died. It has a reason, and tells it.
inline constexpr std::string_view kLeft = "left";
class PeerLeft : public PeerError {
 public:
  using PeerError::PeerError;
};

}  // namespace paceline::comm
