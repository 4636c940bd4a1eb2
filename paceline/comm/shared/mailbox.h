// Messages between ranks that share memory. A message from shared memory is one piece that says where the data lies, and the receiver takes
// it from there: one copy, or none if it reduces. A message from private memory goes through the block in pieces.
//
// There are few pieces between two ranks, and they are filled in the order of the sends. If messages without a receive occupy all of them,
// a rank that waits for another message copies them into its own memory: a message that was not asked for never blocks another.
#pragma once

#include <deque>
#include <list>

#include "paceline/comm/shared/group.h"

namespace paceline::comm::shared {

class Mailbox final : public Transport {
 public:
  explicit Mailbox(Group& group);

  std::unique_ptr<Request> send(int peer, Tag tag, const void* data, std::int64_t bytes) override;
  std::unique_ptr<Request> receive(int peer, Tag tag, void* data, std::int64_t bytes, const Arrival& arrival) override;

 private:
  class Sending;
  class Receiving;
  /// A message, as far as it was copied before a receive was posted.
  struct Early {
    std::uint32_t message;
    Tag tag;
    std::int64_t bytes;
    std::vector<std::byte> data;
  };

  std::uint32_t next_message(int to);
  Mail* free_piece(int to) const;
  void fill_pieces(int to);
  Mail& incoming(int from, int piece) const { return group_.block().mail(from, group_.rank(), piece); }
  const std::byte* contents(const Mail& mail) const;
  void empty(Mail& mail, int from);
  void make_room(int from);
  void keep(const Mail& mail, std::list<Early>& early) const;

  Group& group_;
  std::vector<std::uint32_t> messages_;        // sent so far, by receiver
  std::vector<std::deque<Sending*>> sending_;  // by receiver; the first one fills pieces, so that messages keep their order
  std::vector<std::list<Receiving*>> posted_;  // by sender, in their order
  std::vector<std::list<Early>> early_;        // by sender, in their order; of one tag, earlier than those that begin in the block
};

}  // namespace paceline::comm::shared
