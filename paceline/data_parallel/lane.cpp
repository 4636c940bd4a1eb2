#include "paceline/data_parallel/lane.h"

#include <omp.h>

namespace paceline::data_parallel {

Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Lane::Ticket Lane::start(std::function<void()> job) {
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(job));
  changed_.notify_all();
  return ++started_;
}

void Lane::wait() {
  Ticket latest = 0;
  {
    const std::lock_guard lock(mutex_);
    latest = started_;
  }
  wait(latest);
}

void Lane::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= ticket || problem_; });
  if (problem_) std::rethrow_exception(problem_);
}

void Lane::loop() {
  omp_set_num_threads(1);  // the pass needs the cores
  std::unique_lock lock(mutex_);
  while (!problem_) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const std::function<void()> job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr problem;
    try {
      job();
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    if (problem) problem_ = problem;
    else ++done_;
    changed_.notify_all();
  }
}

}  // namespace paceline::data_parallel
