// Messages between ranks that share memory. A message from shared memory is one piece that says where it lies, and the receiver takes it
// from there: one copy, or none if it reduces. A message from private memory goes in pieces through the block.
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

  std::uint32_t next_message(int to);
  Mail* free_piece(int to) const;

  Group& group_;
  std::vector<std::uint32_t> messages_;         // sent so far, by receiver
  std::vector<std::deque<Sending*>> sending_;   // by receiver; the first one fills pieces, so that messages keep their order
  std::vector<std::list<Receiving*>> waiting_;  // by sender: receives that no message was found for yet, in their order
};

}  // namespace paceline::comm::shared
