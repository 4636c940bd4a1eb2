// The handle of an operation that goes on.
#pragma once

#include <memory>

namespace paceline::comm {

class Work {
 public:
  struct State {
    virtual ~State() = default;
    virtual bool done() = 0;  // also after an error
    virtual void wait() = 0;  // returns once, and throws what went wrong
  };

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Whether wait() would return at once. An empty Work is done.
  bool done() const { return !state_ || state_->done(); }
  /// Until the operation is done; throws what went wrong.
  void wait() const {
    if (state_) state_->wait();
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace paceline::comm
