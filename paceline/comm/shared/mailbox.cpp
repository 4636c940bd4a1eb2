#include "paceline/comm/shared/mailbox.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "paceline/comm/reduce.h"

namespace paceline::comm::shared {
namespace {

/// Orders messages as they were sent. Message numbers wrap around, so their distance tells which one is earlier.
bool is_before(const Mail& a, const Mail& b) {
  return a.message == b.message ? a.offset < b.offset : static_cast<std::int32_t>(a.message - b.message) < 0;
}

}  // namespace

class Mailbox::Sending final : public Request {
 public:
  Sending(Mailbox& box, int peer, Tag tag, const void* data, std::int64_t bytes)
      : box_(box), peer_(peer), tag_(tag), data_(static_cast<const std::byte*>(data)), bytes_(bytes), message_(box.next_message(peer)) {
    // Copying a few bytes is faster than looking them up.
    if (bytes > 4096) location_ = box.group_.host().locate(data, bytes);
    box.sending_[at()].push_back(this);
  }
  ~Sending() override { std::erase(box_.sending_[at()], this); }

  bool test() override {
    if (!filled_) box_.fill_pieces(peer_);
    if (!filled_) return false;
    if (!shown_) return true;  // the pieces carry it, so the memory belongs to the caller again
    if (shown_->state.load(std::memory_order_seq_cst) != Mail::kTaken) return false;
    shown_->state.store(Mail::kFree, std::memory_order_seq_cst);
    return true;
  }

  bool is_filled() const { return filled_; }
  void fill(Mail& mail) {
    const std::int64_t size = location_ ? bytes_ : std::min(kPiece, bytes_ - offset_);
    mail.message = message_, mail.tag = tag_, mail.bytes = bytes_, mail.offset = offset_, mail.size = size, mail.at = location_;
    if (location_) {
      shown_ = &mail;
    } else if (size > 0) {
      std::memcpy(mail.data, data_ + offset_, static_cast<std::size_t>(size));
    }
    offset_ += size;
    filled_ = offset_ == bytes_;
    mail.state.store(Mail::kFull, std::memory_order_seq_cst);
    box_.group_.ring(peer_);
  }

 private:
  std::size_t at() const { return static_cast<std::size_t>(peer_); }

  Mailbox& box_;
  int peer_;
  Tag tag_;
  const std::byte* data_;
  std::int64_t bytes_, offset_ = 0;
  std::uint32_t message_;
  Location location_;
  bool filled_ = false;
  Mail* shown_ = nullptr;  // the piece that shows where the message lies
};

class Mailbox::Receiving final : public Request {
 public:
  Receiving(Mailbox& box, int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival)
      : box_(box), peer_(peer), tag_(tag), data_(static_cast<std::byte*>(data)), bytes_(bytes), arrival_(arrival) {
    posted().push_back(this);
  }
  ~Receiving() override { posted().remove(this); }

  bool test() override {
    if (is_waiting() && !bind()) {
      box_.make_room(peer_);
      return false;
    }
    while (!complete_) {
      Mail* mail = find([this](const Mail& m) { return m.message == message_ && m.offset == offset_; });
      if (!mail) return false;
      take(*mail);
    }
    return true;
  }

  /// Whether this piece belongs to it, as far as is known yet.
  bool wants(const Mail& mail) const { return is_waiting() ? mail.tag == tag_ : mail.message == message_; }

 private:
  std::list<Receiving*>& posted() { return box_.posted_[static_cast<std::size_t>(peer_)]; }
  std::list<Early>& early() { return box_.early_[static_cast<std::size_t>(peer_)]; }
  bool is_waiting() const { return message_ == 0; }

  template <class Condition>
  Mail* find(Condition condition) const {
    Mail* found = nullptr;
    for (int piece = 0; piece < kPieces; ++piece) {
      Mail& mail = box_.incoming(peer_, piece);
      if (mail.state.load(std::memory_order_seq_cst) != Mail::kFull || !condition(mail)) continue;
      if (!found || is_before(mail, *found)) found = &mail;
    }
    return found;
  }

  /// Finds the message for this receive, the earliest with its tag unless an earlier receive waits for that, and takes what has arrived.
  bool bind() {
    for (const Receiving* earlier : posted()) {
      if (earlier == this) break;
      if (earlier->is_waiting() && earlier->tag_ == tag_) return false;
    }
    const auto kept = std::ranges::find(early(), tag_, &Early::tag);
    if (kept != early().end()) {
      accept(kept->message, kept->bytes);
      put(kept->data.data(), static_cast<std::int64_t>(kept->data.size()));
      early().erase(kept);
      return true;
    }
    const auto fits = [this](const Mail& m) { return m.tag == tag_ && m.offset == 0; };
    if (!find(fits)) return false;
    // An earlier message may have arrived in a piece that was already examined. It was there before the one that was found, so examine the
    // pieces again.
    Mail* first = find(fits);
    accept(first->message, first->bytes);
    take(*first);
    return true;
  }

  void accept(std::uint32_t message, std::int64_t bytes) {
    if (bytes != bytes_)
      throw PeerError(peer_, "receive", 0,
                      fmt::format("rank {} sent {} bytes where rank {} receives {} bytes", peer_, bytes, box_.group_.rank(), bytes_));
    message_ = message;
  }

  void take(Mail& mail) {
    put(box_.contents(mail), mail.size);
    box_.empty(mail, peer_);
  }

  void put(const std::byte* from, std::int64_t bytes) {
    if (arrival_.reduces) {
      combine(arrival_.dtype, arrival_.op, data_ + offset_, from, bytes / size_of(arrival_.dtype));
    } else if (bytes > 0) {
      std::memcpy(data_ + offset_, from, static_cast<std::size_t>(bytes));
    }
    offset_ += bytes;
    complete_ = offset_ == bytes_;
  }

  Mailbox& box_;
  int peer_;
  Tag tag_;
  std::byte* data_;
  std::int64_t bytes_, offset_ = 0;
  Arrival arrival_;
  std::uint32_t message_ = 0;
  bool complete_ = false;
};

Mailbox::Mailbox(Group& group)
    : group_(group),
      messages_(static_cast<std::size_t>(group.size())),
      sending_(static_cast<std::size_t>(group.size())),
      posted_(static_cast<std::size_t>(group.size())),
      early_(static_cast<std::size_t>(group.size())) {}

std::uint32_t Mailbox::next_message(int to) {
  std::uint32_t& number = messages_[static_cast<std::size_t>(to)];
  return ++number == 0 ? ++number : number;  // 0 means "none yet"
}

Mail* Mailbox::free_piece(int to) const {
  for (int piece = 0; piece < kPieces; ++piece) {
    Mail& mail = group_.block().mail(group_.rank(), to, piece);
    if (mail.state.load(std::memory_order_seq_cst) == Mail::kFree) return &mail;
  }
  return nullptr;
}

// A thread that waits for a message to be sent fills pieces for earlier messages too: the thread that drives them may be asleep.
void Mailbox::fill_pieces(int to) {
  auto& queue = sending_[static_cast<std::size_t>(to)];
  while (!queue.empty()) {
    Mail* mail = free_piece(to);
    if (!mail) return;
    queue.front()->fill(*mail);
    if (queue.front()->is_filled()) queue.pop_front();
  }
}

const std::byte* Mailbox::contents(const Mail& mail) const { return mail.at ? group_.host().address(mail.at) : mail.data; }

void Mailbox::empty(Mail& mail, int from) {
  mail.state.store(mail.at ? Mail::kTaken : Mail::kFree, std::memory_order_seq_cst);
  group_.ring(from);
}

/// If all pieces are full, so that nothing more can arrive, moves those for which no receive was posted elsewhere.
void Mailbox::make_room(int from) {
  std::array<Mail*, kPieces> pieces;
  for (int piece = 0; piece < kPieces; ++piece) {
    pieces[static_cast<std::size_t>(piece)] = &incoming(from, piece);
    if (incoming(from, piece).state.load(std::memory_order_seq_cst) != Mail::kFull) return;
  }
  std::ranges::sort(pieces, [](const Mail* a, const Mail* b) { return is_before(*a, *b); });
  const auto& posted = posted_[static_cast<std::size_t>(from)];
  for (Mail* mail : pieces) {
    if (std::ranges::any_of(posted, [&](const Receiving* receive) { return receive->wants(*mail); })) continue;
    keep(*mail, early_[static_cast<std::size_t>(from)]);
    empty(*mail, from);
  }
}

void Mailbox::keep(const Mail& mail, std::list<Early>& early) const {
  if (mail.offset == 0) {
    early.push_back({mail.message, mail.tag, mail.bytes, {}});
    early.back().data.reserve(static_cast<std::size_t>(mail.bytes));
  }
  const auto known = std::ranges::find(early, mail.message, &Early::message);
  if (known == early.end()) return;  // the rest of a message whose receive was abandoned
  const std::byte* from = contents(mail);
  known->data.insert(known->data.end(), from, from + mail.size);
}

std::unique_ptr<Transport::Request> Mailbox::send(int peer, Tag tag, const void* data, std::int64_t bytes) {
  return std::make_unique<Sending>(*this, peer, tag, data, bytes);
}

std::unique_ptr<Transport::Request> Mailbox::receive(int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival) {
  return std::make_unique<Receiving>(*this, peer, tag, data, bytes, arrival);
}

}  // namespace paceline::comm::shared
