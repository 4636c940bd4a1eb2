// A worker's link to one server: a connection, a stream, and how they are restored.
#pragma once

#include <grpcpp/channel.h>

#include <atomic>

#include "paceline/base/clock.h"
#include "paceline/ps/transports/grpc_stream.h"
#include "paceline/ps/transports/remote_worker.h"

namespace paceline::ps {

/// Who joins; the same for all links of a worker.
struct Identity {
  JoinOptions options;
  std::uint64_t token = 0;  // distinguishes this worker from another one with the same number
  ArenaLayout layout;
  int worker = -1;
};

class Link {
 public:
  Link(int index, std::string address, const Identity& identity);
  ~Link();

  /// Waits for the server, and joins. PeerError when the patience is exhausted, ConfigError if the server refuses this worker.
  const wire::Joined& connect();

  /// Sends a request and waits for the head of its answer; the payload, if any, has been stored by then. Throws what the server threw, and
  /// PeerError if it is gone for good. Returns an empty string if the server was lost and is back, and the question must be asked only
  /// once.
  std::string ask(const Question& question);

  /// Called by the pulse thread: tells the server that the worker is alive, and cuts a stream whose answer is overdue.
  void tend();
  void close(Nanoseconds within);

 private:
  using Stream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

  std::string ask_once(const Question& question);
  void join_until(Nanoseconds moment);
  void open(Nanoseconds moment);
  std::string drop();  // cuts the stream, and returns why it ended; DataError if the server did not understand a request
  void release();
  [[noreturn]] void give_up(const std::string& why) const;
  std::string name() const;

  int index_;
  std::string address_;
  const Identity& identity_;
  SteadyClock clock_;
  wire::Joined joined_;
  std::int64_t seen_ = 0;  // version of the last pull

  std::mutex mutex_;  // guards the pointers against tend()
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<Stream> stream_;
  std::atomic<Nanoseconds> overdue_{Nanoseconds::max()};
  Nanoseconds next_beat_{0};
  Loan loan_;  // for what is being sent
};

}  // namespace paceline::ps
