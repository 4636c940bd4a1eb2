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
    virtual void abandon() = 0;
  };

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Whether wait() would return at once. An empty Work is done.
  bool done() const { return !state_ || state_->done(); }
  /// Until the operation is done; throws what went wrong.
  void wait() const {
    if (state_) state_->wait();
  }
  /// Gives it up where it is not done, so that the memory it would fill may go; a Work that is merely dropped goes on. The other side may
  /// wait for its part until the deadline. With a collective the communicator is given up too.
  void abandon() const {
    if (state_) state_->abandon();
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace paceline::comm
