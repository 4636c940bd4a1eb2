// A server's desk for one worker: it answers the worker's requests, whatever the transport, and holds its buffers.
//
//   head ─ room_for(head): where its payload is stored ─ answer(head) ─ a reply, to be sent before the next request
#pragma once

#include "paceline/ps/transports/service.h"
#include "paceline/ps/transports/wire.h"

namespace paceline::ps {

/// Throws ConfigError if a worker that joins with this text has another model, compression or recipe than the server.
void check_alike(const wire::Join& join, std::string_view text, const ArenaLayout& layout, const ServiceOptions& options);
/// The longest text that a joining worker may send: enough for one that matches and for one that does not, so that the worker can be told
/// why.
std::int64_t longest_introduction(const ArenaLayout& layout, const ServiceOptions& options);
/// What a joining worker is told.
wire::Joined welcome(int worker, ConcurrentServer& concurrent, const ServiceOptions& options);
/// Throws ConfigError if such a service is not possible.
void check_service(ConcurrentServer& concurrent, const ServiceOptions& options);

class Desk {
 public:
  struct Reply {
    std::string head;
    std::span<const std::byte> payload;
  };

  Desk(ConcurrentServer& concurrent, const ArenaLayout& layout, const ServiceOptions& options, int worker);

  int worker() const { return worker_; }
  const std::optional<Task>& task() const { return task_; }  // the task that it has now

  /// Throws DataError if the head is not a request, or its payload has the wrong size.
  std::span<std::byte> room_for(std::string_view head);
  /// Valid until the next answer. What the server throws becomes a reply as well. A pull waits for its turn.
  Reply answer(std::string_view head);
  Reply failure(const std::exception& error);

 private:
  template <class Body>
  static Reply reply(wire::Verb verb, const Body& body, std::span<const std::byte> payload = {}) {
    return {wire::pack(verb, body, std::ssize(payload)), payload};
  }
  std::span<std::byte> order_room(std::int64_t bytes);
  Reply act(const wire::Head& head, std::string_view bytes);
  Reply pull(const wire::PullRequest& request);
  Reply push(const wire::PushRequest& request, std::int64_t bytes);
  Reply next(const wire::NextRequest& request);
  Reply done(const wire::Done& what);
  Reply order(const wire::OrderRequest& request, std::int64_t bytes);
  Reply answered();

  ConcurrentServer& concurrent_;
  const ServiceOptions& options_;
  int worker_;
  bool replica_;
  std::optional<Task> task_;
  std::size_t length_;
  std::shared_ptr<float[]> staging_, gradient_;  // what it pulls, and what it pushes, unless it is an observer
  std::vector<float> statistics_;
  std::optional<PushDecoder> decoder_;
  std::vector<std::byte> code_;
  std::string text_;   // the message of an error
  std::string order_;  // on its way, or the answer to it
  std::int64_t longest_order_;
};

}  // namespace paceline::ps
