// One worker's desk at a server: its requests are answered here, whatever carries them, and its buffers lie here.
//
//   head ─ room_for(head): where its payload goes ─ answer(head) ─ a reply, to be sent before the next request
#pragma once

#include "paceline/ps/transports/service.h"
#include "paceline/ps/transports/wire.h"

namespace paceline::ps {

/// Throws ConfigError where a worker that joins with this text has another model, compression or recipe than the server.
void check_alike(const wire::Join& join, std::string_view text, const ArenaLayout& layout, const ServiceOptions& options);
/// Bytes that the text of a worker that joins may have: those of one that fits, and room for one that does not, so that it can be told why.
std::int64_t longest_introduction(const ArenaLayout& layout, const ServiceOptions& options);
/// What a worker that joins is told.
wire::Joined welcome(int worker, ConcurrentServer& concurrent, const ServiceOptions& options);
/// Throws ConfigError where such a service cannot be.
void check_service(ConcurrentServer& concurrent, const ServiceOptions& options);

class Desk {
 public:
  struct Reply {
    std::string head;
    std::span<const std::byte> payload;
  };

  Desk(ConcurrentServer& concurrent, const ArenaLayout& layout, const ServiceOptions& options, int worker);

  int worker() const { return worker_; }
  const std::optional<Task>& task() const { return task_; }  // that it has now

  /// Throws DataError where the head is no request, or its payload has not the size that it should.
  std::span<std::byte> room_for(std::string_view head);
  /// Good until the next answer. What the host throws becomes a reply too. A pull waits for its turn.
  Reply answer(std::string_view head);
  Reply failure(const std::exception& error);

 private:
  template <class Body>
  static Reply reply(wire::Verb verb, const Body& body, std::span<const std::byte> payload = {}) {
    return {wire::pack(verb, body, std::ssize(payload)), payload};
  }
  Reply act(const wire::Head& head, std::string_view bytes);
  Reply pull(const wire::PullRequest& request);
  Reply push(const wire::PushRequest& request, std::int64_t bytes);
  Reply next(const wire::NextRequest& request);
  Reply done(const wire::Done& what);

  ConcurrentServer& concurrent_;
  const ServiceOptions& options_;
  int worker_;
  bool replica_;
  std::optional<Task> task_;
  std::size_t length_;
  std::shared_ptr<float[]> staging_, gradient_;  // what it pulls, and what it pushes, unless it only looks
  std::vector<float> statistics_;
  std::optional<PushDecoder> decoder_;
  std::vector<std::byte> code_;
  std::string text_;  // of a failure
};

}  // namespace paceline::ps
