// A worker's half of the protocol: its requests to the servers, and what it does with their answers. The transports derive from this and
// deliver the requests (grpc_client.cpp, ranks_client.cpp).
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "paceline/ps/transports/service.h"
#include "paceline/ps/transports/wire.h"

namespace paceline::ps {

/// A request to one server.
struct Question {
  std::string head;
  std::span<const std::byte> payload = {};
  std::span<std::byte> into = {};  // where the answer's payload is stored, if it has one
  bool once = false;               // must not be repeated if the server is lost before it answers

  wire::Verb verb() const { return wire::unpack_head(head).verb; }
  /// The head of an answer. DataError, with the name of the server, if it does not answer the question; an error answers any.
  wire::Head check(std::string_view answer, const std::string& server) const;
};

/// What a worker sends when it joins; the text is the payload.
struct Introduction {
  Introduction(int worker, const ArenaLayout& layout, const JoinOptions& options, std::uint64_t token = 0);
  Question question() const { return {.head = head, .payload = std::as_bytes(std::span(text))}; }

  std::string text, head;
};

/// Calls body(0), …, body(count − 1) concurrently; throws what the first of them threw.
template <class Body>
void at_once(std::size_t count, const Body& body) {
  std::vector<std::exception_ptr> errors(count);
  const auto guarded = [&](std::size_t i) {
    try {
      body(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;  // a thread costs little compared with a transfer
    for (std::size_t i = 1; i < count; ++i) others.emplace_back(guarded, i);
    if (count > 0) guarded(0);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

class RemoteWorker : public RemoteClient {
 public:
  int worker() const override { return worker_; }
  void pull(float* into, float rate) override;
  Advice report(const Report& report, const float* statistics) override;
  Admission push(float* gradient, const Push& push) override;
  bool cancelled() override;
  std::optional<Task> next(bool visits) override;
  void done(const Task& task, double loss_sum, double right, std::int64_t targets) override;
  void on_order(std::function<std::string(std::string_view order)> carry_out) override { carry_out_ = std::move(carry_out); }
  std::vector<std::string> order(std::span<const std::string> orders) override;
  std::map<std::int64_t, std::int64_t> resumed() const override;
  std::vector<Unsent> unsent() override;

 protected:
  explicit RemoteWorker(const ArenaLayout& layout) : layout_(layout) {}
  /// It has joined as this worker, and these are the servers' places, in order.
  void begin(int worker, std::vector<wire::Joined> places, const PushCompression& compression);

  /// Sends questions[i] to server i, all concurrently; there may be fewer questions than servers. Returns the heads of the answers once
  /// their payloads are stored. An empty head: the server was lost, and the question must be asked only once. Throws what the first of them
  /// threw.
  virtual std::vector<std::string> ask(std::span<const Question> questions) = 0;

 private:
  std::string ask_first(const Question& question) { return ask(std::span(&question, 1)).front(); }
  std::span<float> range(float* arena, const wire::Joined& place) const {
    return {arena + place.begin, static_cast<std::size_t>(place.end - place.begin)};
  }
  void take_order();
  std::int64_t length_in(const std::string& answer) const;  // of an order or its answer
  std::vector<Question> push_questions(float* gradient, const Push& push);
  bool retries() const { return !places_.empty() && places_[0].durable; }

  ArenaLayout layout_;
  int worker_ = -1;
  std::vector<wire::Joined> places_;   // by server
  std::vector<PushEncoder> encoders_;  // by server; none: pushes are not compressed
  std::vector<float> answer_;          // to a push; received beside the parameters, so that a retry sends them unchanged
  Task task_;                          // the last one
  std::function<std::string(std::string_view order)> carry_out_;
};

}  // namespace paceline::ps
