// An operation in flight, as a state machine: whoever drives it calls advance() until it is done. Because no activity ever blocks, one
// thread can drive many, and sends, receives and collectives never wait for one another without need.
#pragma once

#include <memory>
#include <vector>

namespace paceline::comm {

class Activity {
 public:
  virtual ~Activity() = default;
  /// Goes on as far as it can without waiting. True once it is done; it is not called again then.
  virtual bool advance() = 0;
  /// The rank that it waits for; −1 where it waits for nobody.
  virtual int waits_for() const = 0;
};

/// One after the other.
class Sequence final : public Activity {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Activity>> parts) : parts_(std::move(parts)) {}
  bool advance() override {
    while (at_ < parts_.size() && parts_[at_]->advance()) ++at_;
    return at_ == parts_.size();
  }
  int waits_for() const override { return at_ < parts_.size() ? parts_[at_]->waits_for() : -1; }

 private:
  std::vector<std::unique_ptr<Activity>> parts_;
  std::size_t at_ = 0;
};

}  // namespace paceline::comm
