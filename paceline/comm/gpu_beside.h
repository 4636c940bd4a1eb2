// A collective on GPU memory that runs concurrently with its caller's stream.
//
// It begins when the work that was on the caller's stream at start() is done, and runs on a stream of the communicator. Waiting for its
// Work makes the caller's stream wait for the collective; the host continues as soon as all ranks have arrived, with the deadline that
// every operation has.
#pragma once

#include <memory>

#include "paceline/comm/activity.h"
#include "paceline/comm/gpu.h"
#include "paceline/comm/work.h"

namespace paceline::comm {

/// Records an event on the stream once the activity is done.
class Marked final : public Activity {
 public:
  Marked(std::unique_ptr<Activity> activity, std::shared_ptr<gpu::Mark> done, void* stream)
      : activity_(std::move(activity)), done_(std::move(done)), stream_(stream) {}

  bool advance() override {
    if (!activity_->advance()) return false;
    done_->record(stream_);
    return true;
  }
  int waits_for() const override { return activity_->waits_for(); }

 private:
  std::unique_ptr<Activity> activity_;
  std::shared_ptr<gpu::Mark> done_;
  void* stream_;
};

class WaitedForByStream final : public Work::State {
 public:
  WaitedForByStream(Work work, std::shared_ptr<gpu::Mark> done, void* stream)
      : work_(std::move(work)), done_(std::move(done)), stream_(stream) {}

  bool done() override { return work_.done(); }
  void wait() override {
    work_.wait();
    done_->hold(stream_);
  }
  void abandon() override {
    const bool on_its_way = work_.done();  // the host's part is done, but a stream is still filling the memory
    work_.abandon();
    if (on_its_way) done_->hold(stream_);
  }

 private:
  Work work_;
  std::shared_ptr<gpu::Mark> done_;
  void* stream_;
};

}  // namespace paceline::comm
