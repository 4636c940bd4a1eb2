// The handle of an operation in flight.
//
// On memory of the CPU a Work that is done means that the data is there. On memory of a GPU it means that the host's part is over: the data
// is there for what the buffer's stream does after wait(), and the host sees it once it has waited for that stream.
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

  /// Whether wait() would return at once. An empty Work is done. Of a GPU's memory it says nothing of the data before wait().
  bool done() const { return !state_ || state_->done(); }
  /// Until the operation is done; throws what went wrong. On a GPU the buffer's stream waits for the data, and the host need not.
  void wait() const {
    if (state_) state_->wait();
  }
  /// Gives it up if it is not done, so that the memory it would fill can be freed; a Work that is merely dropped continues. The other side
  /// may wait for its part until the deadline. With a collective the communicator is given up too.
  void abandon() const {
    if (state_) state_->abandon();
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace paceline::comm
