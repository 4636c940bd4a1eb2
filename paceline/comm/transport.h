// Messages between two ranks: what an engine must provide so that every schedule runs on it.
//
// Nothing here blocks. A message goes to the earliest receive that was posted for its sender and tag; messages with one tag stay in order.
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

/// How arriving elements are stored: they overwrite what is there, or are reduced into it.
struct Arrival {
  bool reduces = false;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
};

class Transport {
 public:
  /// A message in flight. If it is destroyed before it is done, the engine drops it.
  class Request {
   public:
    virtual ~Request() = default;
    /// True once the memory belongs to the caller again. Throws PeerError if the engine knows that the peer is gone.
    virtual bool test() = 0;
  };

  virtual ~Transport() = default;
  virtual std::unique_ptr<Request> send(int peer, Tag tag, const void* data, std::int64_t bytes) = 0;
  virtual std::unique_ptr<Request> receive(int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival) = 0;
};

/// Which thread of a rank sleeps: a caller that waits for an operation, or the helper that drives operations while their callers compute.
/// Each has its own bell, so that the helper stays asleep while a caller drives.
enum class Sleeper : std::uint8_t { caller, helper };

/// How an engine waits for something to change. A bell is only rung for a sleeper that was announced, so that ringing costs nothing while
/// all are awake:
///
///   announce(me); const auto heard = bell(me); look; sleep(me, heard, …); retract(me);
///
/// A change before the look is seen by it, and a change after it rings. A sleeper that was not announced, by itself or by another thread on
/// its behalf, is woken by wake() alone.
class Waiter {
 public:
  virtual ~Waiter() = default;
  /// How often to look again before sleeping; 0 if ranks share cores.
  virtual int spins() const = 0;
  /// Whether every rank of this machine has a second core, for its helper.
  virtual bool has_core_for_helper() const = 0;
  virtual void announce(Sleeper sleeper) = 0;
  virtual void retract(Sleeper sleeper) = 0;
  /// How many times it has rung.
  virtual std::uint32_t bell(Sleeper sleeper) = 0;
  /// Sleeps until the bell has rung more than `heard` times, at most this long.
  virtual void sleep(Sleeper sleeper, std::uint32_t heard, Nanoseconds at_most) = 0;
  /// Rings this rank's own bell.
  virtual void wake(Sleeper sleeper) = 0;
  /// Rings the announced helpers of the other ranks: a caller that is about to sleep may be waiting for their work.
  virtual void wake_helpers() = 0;
  /// How long no look is needed unless a bell rings. Called after a look, before sleeping.
  virtual Nanoseconds patience() = 0;
  /// How this peer is known to be gone ("its process ended", or kLeft); empty while it is alive. Called a few times a second.
  virtual std::string gone(int peer) = 0;
  /// Tells the others that nothing more comes from this rank, because of a rank of the run (judge.h) that may be itself. A rank that waits
  /// for this one would otherwise learn of it only when it leaves, and it may compute for a long time before that.
  virtual void give_up(int culprit) = 0;
  /// The rank of the run because of which this peer gave up; −1 if it is not known to have given up. Final once it is gone.
  virtual int culprit_of(int peer) = 0;
};

/// For a peer that closed its communicator rather than died. It has a reason, which it reports itself.
inline constexpr std::string_view kLeft = "left";
class PeerLeft : public PeerError {
 public:
  using PeerError::PeerError;
};

}  // namespace paceline::comm
