// An operation in flight whose memory goes out of scope with it: it is cancelled if the scope is left before it is done.
#pragma once

#include <utility>

#include "paceline/comm/work.h"

namespace paceline::data_parallel {

class Pending {
 public:
  Pending() = default;
  explicit Pending(comm::Work work) : work_(std::move(work)) {}
  Pending(Pending&& other) noexcept : work_(std::exchange(other.work_, {})) {}
  Pending& operator=(Pending&& other) noexcept {
    std::swap(work_, other.work_);
    return *this;
  }
  ~Pending() { work_.abandon(); }

  bool done() const { return work_.done(); }
  void wait() const { work_.wait(); }

 private:
  comm::Work work_;
};

}  // namespace paceline::data_parallel
