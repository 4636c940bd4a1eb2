// One worker's stream, on the server: takes its requests one after the other and answers them.
#pragma once

#include <atomic>

#include "paceline/ps/transports/grpc_stream.h"

namespace paceline::ps {

class Session {
 public:
  using Stream = grpc::ServerReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;

  Session(grpc::ServerContext& context, Stream& stream, int worker, std::uint64_t token);

  int worker() const { return worker_; }
  std::uint64_t token() const { return token_; }
  const std::string& peer() const { return peer_; }
  const std::optional<Task>& task() const { return task_; }  // that it has now

  /// From any thread.
  bool is_cut() const { return context_.IsCancelled(); }
  void cut() { context_.TryCancel(); }
  /// It was not heard of for too long.
  void forget() { forgotten_ = true, cut(); }
  bool is_forgotten() const { return forgotten_; }

  /// Answers until the worker goes. Throws Broken, or DataError where it does not speak as a worker does.
  void serve(Host& host, const Layout& layout, const GrpcServer::Options& options);

 private:
  struct House {
    Host& host;
    const Layout& layout;
    const GrpcServer::Options& options;
  };
  void answer(const House& house, const std::string& bytes);
  void pull(const House& house, const wire::PullRequest& request);
  void push(const House& house, const wire::PushRequest& request, std::int64_t bytes);
  void report(const House& house, const Report& report, std::int64_t bytes);
  void next(const House& house);
  void done(const House& house, const wire::Done& what);

  /// Makes the answer by `act`; an exception of it becomes the answer.
  template <class Act>
  void reply(const Act& act);
  template <class Body>
  void send_reply(wire::Verb verb, const Body& body, std::span<const std::byte> payload = {});

  grpc::ServerContext& context_;
  Stream& stream_;
  std::string peer_;  // its address
  int worker_;
  std::uint64_t token_;
  std::atomic<bool> forgotten_ = false;
  std::optional<Task> task_;

  std::int64_t length_ = 0;
  std::shared_ptr<float[]> staging_, gradient_;  // what it pulls, and what it pushes
  bool replica_ = false;
  std::optional<PushDecoder> decoder_;
  std::vector<std::byte> code_;
  Loan loan_;  // of the two buffers; last, so that it ends first
};

}  // namespace paceline::ps
