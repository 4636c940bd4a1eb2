// Messages of any length over a network library, sent in pieces.
//
// A message begins with a head: its length, and as many of its bytes as fit. Pieces of kPiece bytes follow; the last one has the rest. A
// few of them are in flight at a time, so that the receiver reduces one while the next ones arrive.
//
// Invariants. The pieces of all messages between two ranks with one tag form a queue: they are posted, and complete, in the order in which
// the library matches them. No piece is longer than the memory posted for it, whatever the sender sends (Gloo would abort the process):
// only full pieces are received in place; heads and last pieces go to a buffer large enough for the longest.
#pragma once

#include <map>

#include "paceline/comm/scratch.h"
#include "paceline/comm/transport.h"

namespace paceline::comm {

/// A network library between the ranks of a group.
class Wire {
 public:
  virtual ~Wire() = default;
  /// How many pieces of a queue are in flight at a time.
  virtual std::size_t window() const = 0;
  virtual std::unique_ptr<Transport::Request> send(int peer, Tag tag, const void* data, std::int64_t bytes) = 0;
  /// Receives at most `room` bytes.
  virtual std::unique_ptr<Transport::Request> receive(int peer, Tag tag, void* data, std::int64_t room) = 0;
};

class PieceTransport final : public Transport {
 public:
  PieceTransport(Wire& wire, int rank);
  ~PieceTransport() override;

  std::unique_ptr<Request> send(int peer, Tag tag, const void* data, std::int64_t bytes) override;
  std::unique_ptr<Request> receive(int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival) override;

 private:
  class Line;
  class Message;
  class Sending;
  class Receiving;
  struct Piece;
  using Lines = std::map<std::pair<int, Tag>, Line>;

  Wire& wire_;
  int rank_;
  Scratch scratch_;  // for heads and pieces
  Lines sending_, receiving_;
};

}  // namespace paceline::comm
