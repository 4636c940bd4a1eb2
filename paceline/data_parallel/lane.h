// A thread that does one job after the other, in the order in which they were given, while whoever gave them continues: buckets that are
// reduced during the backward pass, parameters that are gathered for the next unit.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace paceline::data_parallel {

class Lane {
 public:
  /// Counts jobs, from 1.
  using Ticket = std::uint64_t;

  Lane() = default;
  /// Waits for the job that is running, and leaves the others.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// The thread begins with the first job. It ends with the first job that throws: later ones are left undone.
  Ticket start(std::function<void()> job);
  /// Until that job is done, or all that were started. Throws what a job threw.
  void wait(Ticket ticket);
  void wait();

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  Ticket started_ = 0, done_ = 0;
  bool stopping_ = false;
  std::exception_ptr problem_;
  std::thread thread_;
};

}  // namespace paceline::data_parallel
