// The handle of an operation in flight.
//
// In CPU memory, the data is there once the Work is done. In GPU memory, only the host's part is over by then: what is put on the buffer's
// stream after wait() sees the data, and the host sees it after synchronising with that stream.
#pragma once

#include <memory>

namespace paceline::comm {

class Work {
 public:
  struct State {
    virtual ~State() = default;
    virtual bool done() = 0;  // also after an error
    virtual void wait() = 0;  // returns once, and throws if the operation failed
    virtual void abandon() = 0;
  };

  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}

  /// Whether wait() would return at once. An empty Work is done. For GPU memory, this says nothing about the data before wait().
  bool done() const { return !state_ || state_->done(); }
  /// Waits until the operation is done; throws if it failed. On a GPU, the buffer's stream waits for the data, and the host need not.
  void wait() const {
    if (state_) state_->wait();
  }
  /// Cancels it if it is not done, so that the memory that it would fill can be freed; a Work that is merely dropped continues. The other
  /// side may wait for its part until the deadline. Cancelling a collective gives up the communicator as well.
  void abandon() const {
    if (state_) state_->abandon();
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace paceline::comm
