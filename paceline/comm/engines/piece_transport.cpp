#include "paceline/comm/engines/piece_transport.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <list>

#include <fmt/format.h>

#include "paceline/base/error.h"
#include "paceline/comm/reduce.h"
#include "paceline/schedule/schedule.h"

namespace paceline::comm {
namespace {

using schedule::Range;

constexpr std::int64_t kPiece = 512 << 10, kHead = (64 << 10) + 8;
constexpr std::int64_t kLength = sizeof(std::int64_t), kInHead = kHead - kLength;  // the rest of a head is data

}  // namespace

struct PieceTransport::Piece {
  Message* message;
  Range range;             // bytes of the message
  Scratch::Piece scratch;  // outlives the request that uses it
  std::unique_ptr<Request> request;

  bool is_head() const { return range.begin == 0; }
};

/// Messages to or from one peer with one tag.
class PieceTransport::Line {
 public:
  explicit Line(std::size_t window) : window_(window) {}
  void join(Message* message);
  /// Returns true if it was the last one.
  bool leave(const Message* message);
  void advance();
  /// Posts as many pieces as may be in flight.
  void post();

 private:
  std::size_t window_;
  int members_ = 0;

  std::list<Message*> to_post_;
  std::deque<Piece> in_flight_;
};

class PieceTransport::Message : public Request {
 public:
  Message(PieceTransport& transport, Lines& lines, int peer, Tag tag, std::int64_t bytes)
      : transport_(transport),
        peer_(peer),
        tag_(tag),
        bytes_(bytes),
        lines_(lines),
        line_(lines.try_emplace({peer, tag}, transport.wire_.window()).first) {
    line_->second.join(this);
  }
  ~Message() override {
    if (line_->second.leave(this)) lines_.erase(line_);
  }

  bool test() final {
    if (!done()) line_->second.advance();
    return done();
  }

  bool all_posted() const { return posted_ == pieces(); }
  Piece next() {
    Piece piece{this, range(posted_), {}, {}};
    start(piece);
    ++posted_;
    return piece;
  }
  void end(Piece& piece) {
    ended(piece);
    ++ended_;
  }

 protected:
  virtual void start(Piece& piece) = 0;
  virtual void ended(Piece& piece) = 0;
  void post() { line_->second.post(); }

  PieceTransport& transport_;
  const int peer_;
  const Tag tag_;
  const std::int64_t bytes_;

 private:
  bool done() const { return ended_ == pieces(); }
  std::int64_t pieces() const { return 1 + (std::max(bytes_ - kInHead, std::int64_t{0}) + kPiece - 1) / kPiece; }
  Range range(std::int64_t piece) const {
    const std::int64_t begin = piece == 0 ? 0 : kInHead + (piece - 1) * kPiece;
    return {begin, std::min(bytes_, piece == 0 ? kInHead : begin + kPiece)};
  }

  Lines& lines_;
  Lines::iterator line_;
  std::int64_t posted_ = 0, ended_ = 0;  // pieces
};

void PieceTransport::Line::join(Message* message) {
  ++members_;
  to_post_.push_back(message);
}

bool PieceTransport::Line::leave(const Message* message) {
  to_post_.remove_if([&](const Message* other) { return other == message; });
  std::erase_if(in_flight_, [&](const Piece& piece) { return piece.message == message; });
  return --members_ == 0;
}

void PieceTransport::Line::post() {
  while (!to_post_.empty() && in_flight_.size() < window_) {
    in_flight_.push_back(to_post_.front()->next());
    if (to_post_.front()->all_posted()) to_post_.pop_front();
  }
}

void PieceTransport::Line::advance() {
  while (!in_flight_.empty() && in_flight_.front().request->test()) {
    Piece piece = std::move(in_flight_.front());
    in_flight_.pop_front();
    piece.message->end(piece);
    post();
  }
}

class PieceTransport::Sending final : public Message {
 public:
  Sending(PieceTransport& transport, int peer, Tag tag, const void* data, std::int64_t bytes)
      : Message(transport, transport.sending_, peer, tag, bytes), data_(static_cast<const std::byte*>(data)) {
    post();
  }

 private:
  void start(Piece& piece) override {
    const std::byte* from = data_ + piece.range.begin;
    std::int64_t bytes = piece.range.size();
    if (piece.is_head()) {
      piece.scratch = transport_.scratch_.take(kPiece);
      std::memcpy(piece.scratch.get(), &bytes_, kLength);
      if (bytes > 0) std::memcpy(piece.scratch.get() + kLength, from, static_cast<std::size_t>(bytes));
      from = piece.scratch.get();
      bytes += kLength;
    }
    piece.request = transport_.wire_.send(peer_, tag_, from, bytes);
  }
  void ended(Piece&) override {}

  const std::byte* data_;
};

class PieceTransport::Receiving final : public Message {
 public:
  Receiving(PieceTransport& transport, int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival)
      : Message(transport, transport.receiving_, peer, tag, bytes), data_(static_cast<std::byte*>(data)), arrival_(arrival) {
    post();
  }

 private:
  void start(Piece& piece) override {
    std::byte* into = data_ + piece.range.begin;
    if (arrival_.reduces || piece.range.size() < kPiece) {
      piece.scratch = transport_.scratch_.take(kPiece);
      into = piece.scratch.get();
    }
    piece.request = transport_.wire_.receive(peer_, tag_, into, kPiece);
  }

  void ended(Piece& piece) override {
    if (piece.is_head()) check_length(piece.scratch.get());
    if (!piece.scratch || piece.range.size() == 0) return;
    const std::byte* from = piece.scratch.get() + (piece.is_head() ? kLength : 0);
    std::byte* into = data_ + piece.range.begin;
    if (arrival_.reduces) {
      combine(arrival_.dtype, arrival_.op, into, from, piece.range.size() / size_of(arrival_.dtype));
    } else {
      std::memcpy(into, from, static_cast<std::size_t>(piece.range.size()));
    }
  }

  void check_length(const std::byte* head) const {
    std::int64_t sent = 0;
    std::memcpy(&sent, head, kLength);
    if (sent != bytes_)
      throw PeerError(peer_, "receive", 0,
                      fmt::format("rank {} sent {} bytes where rank {} receives {} bytes", peer_, sent, transport_.rank_, bytes_));
  }

  std::byte* data_;
  const Arrival arrival_;
};

PieceTransport::PieceTransport(Wire& wire, int rank) : wire_(wire), rank_(rank) {}
PieceTransport::~PieceTransport() = default;

std::unique_ptr<Transport::Request> PieceTransport::send(int peer, Tag tag, const void* data, std::int64_t bytes) {
  return std::make_unique<Sending>(*this, peer, tag, data, bytes);
}

std::unique_ptr<Transport::Request> PieceTransport::receive(int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival) {
  return std::make_unique<Receiving>(*this, peer, tag, data, bytes, arrival);
}

}  // namespace paceline::comm
