#include "paceline/comm/shared/mailbox.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "paceline/comm/reduce.h"

namespace paceline::comm::shared {

class Mailbox::Sending final : public Request {
 public:
  Sending(Mailbox& box, int peer, Tag tag, const void* data, std::int64_t bytes)
      : box_(box), peer_(peer), tag_(tag), data_(static_cast<const std::byte*>(data)), bytes_(bytes), message_(box.next_message(peer)) {
    // A few bytes are sooner copied than looked up.
    if (bytes > 4096) location_ = box.group_.host().locate(data, bytes);
    box.sending_[at()].push_back(this);
  }
  ~Sending() override { std::erase(box_.sending_[at()], this); }

  bool test() override {
    auto& queue = box_.sending_[at()];
    if (!filled_ && queue.front() == this) {
      while (!filled_) {
        Mail* mail = box_.free_piece(peer_);
        if (!mail) break;
        fill(*mail);
      }
      if (filled_) queue.pop_front();
    }
    if (!filled_) return false;
    if (!shown_) return true;  // the pieces carry it; the memory is the caller's again
    if (shown_->state.load(std::memory_order_seq_cst) != Mail::kTaken) return false;
    shown_->state.store(Mail::kFree, std::memory_order_seq_cst);
    return true;
  }

 private:
  std::size_t at() const { return static_cast<std::size_t>(peer_); }

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
    waiting().push_back(this);
  }
  ~Receiving() override { waiting().remove(this); }

  bool test() override {
    if (message_ == 0 && !bind()) return false;
    while (Mail* mail = find([this](const Mail& m) { return m.message == message_ && m.offset == offset_; })) {
      take(*mail);
      if (offset_ == bytes_) return true;
    }
    return false;
  }

 private:
  std::list<Receiving*>& waiting() { return box_.waiting_[static_cast<std::size_t>(peer_)]; }

  template <class Condition>
  Mail* find(Condition condition) const {
    Mail* found = nullptr;
    for (int piece = 0; piece < kPieces; ++piece) {
      Mail& mail = box_.group_.block().mail(peer_, box_.group_.rank(), piece);
      if (mail.state.load(std::memory_order_seq_cst) != Mail::kFull || !condition(mail)) continue;
      // Message numbers wrap around, so it is their distance that tells which is the earlier one.
      if (!found || static_cast<std::int32_t>(mail.message - found->message) < 0) found = &mail;
    }
    return found;
  }

  /// Finds the message for this receive: the earliest with its tag, unless an earlier receive waits for that.
  bool bind() {
    for (Receiving* earlier : waiting()) {
      if (earlier == this) break;
      if (earlier->tag_ == tag_) return false;
    }
    const auto fits = [this](const Mail& m) { return m.tag == tag_ && m.offset == 0; };
    if (!find(fits)) return false;
    // An earlier message may have come into a piece that had been looked at already. It was there before the one that was found: look
    // again.
    const Mail* first = find(fits);
    if (first->bytes != bytes_)
      throw PeerError(
          peer_, "receive", 0,
          fmt::format("rank {} sent {} bytes where rank {} receives {} bytes", peer_, first->bytes, box_.group_.rank(), bytes_));
    message_ = first->message;
    waiting().remove(this);
    return true;
  }

  void take(Mail& mail) {
    const std::byte* from = mail.at ? box_.group_.host().address(mail.at) : mail.data;
    if (arrival_.reduces) {
      combine(arrival_.dtype, arrival_.op, data_ + offset_, from, mail.size / size_of(arrival_.dtype));
    } else if (mail.size > 0) {
      std::memcpy(data_ + offset_, from, static_cast<std::size_t>(mail.size));
    }
    offset_ += mail.size;
    mail.state.store(mail.at ? Mail::kTaken : Mail::kFree, std::memory_order_seq_cst);
    box_.group_.ring(peer_);
  }

  Mailbox& box_;
  int peer_;
  Tag tag_;
  std::byte* data_;
  std::int64_t bytes_, offset_ = 0;
  Arrival arrival_;
  std::uint32_t message_ = 0;
};

Mailbox::Mailbox(Group& group)
    : group_(group),
      messages_(static_cast<std::size_t>(group.size())),
      sending_(static_cast<std::size_t>(group.size())),
      waiting_(static_cast<std::size_t>(group.size())) {}

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

std::unique_ptr<Transport::Request> Mailbox::send(int peer, Tag tag, const void* data, std::int64_t bytes) {
  return std::make_unique<Sending>(*this, peer, tag, data, bytes);
}

std::unique_ptr<Transport::Request> Mailbox::receive(int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival) {
  return std::make_unique<Receiving>(*this, peer, tag, data, bytes, arrival);
}

}  // namespace paceline::comm::shared
