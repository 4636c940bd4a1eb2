// A thread that runs jobs one after the other, in the order in which they were added, while the adding thread continues: for buckets that
// are reduced during the backward pass, and parameters that are gathered for the next unit.
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
  /// Waits for the running job and drops the others.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// The thread starts with the first job. After a job that throws, later ones are dropped.
  Ticket start(std::function<void()> job);
  /// Waits for that job, or for all that were added. Throws what a job threw.
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
