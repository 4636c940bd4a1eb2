// Updates without a lock (ps.lock_free): Hogwild (Niu, Recht, Ré, Wright 2011), as in Project Adam (Chilimbi et al. 2014).
//
// The bookkeeping of a push stays under the state's lock, which is held only briefly. The pass over memory does not: an addition to a
// parameter is atomic, so none is lost, but pulls and pushes continue at the same time, and a worker may pull some parameters before
// another one's push and some after it. Elements are read and written with relaxed ordering; code that needs a consistent view waits until
// the workers are idle.
#include <atomic>

#include "paceline/ps/server.h"

namespace paceline::ps {

Admission Server::note_push(int index, const Push& push) {
  const Admission admission = consistency_->pushed(index, push.loss);
  if (admission.fate != Admission::Fate::applied) {
    ++dropped_;
    return admission;
  }
  ++staleness_[version_ - worker(index).pulled_version];
  ++version_;
  return admission;
}

void Server::add_without_lock(const float* gradient, const Push& push) {
  const float rate = config_.pushes_steps() ? 1 : push.rate;
  for (const optim::Segment& segment : optimizer_.segments()) {
    const float decay = segment.decay ? weight_decay_ : 0;
    for (std::int64_t i = segment.offset; i < segment.offset + segment.count; ++i) {
      const std::atomic_ref<float> parameter(parameters_[i]);
      parameter.fetch_sub(rate * (push.scale * gradient[i] + decay * parameter.load(std::memory_order_relaxed)), std::memory_order_relaxed);
    }
  }
}

void Server::read_without_lock(float* into) const {
  for (std::int64_t i = 0; i < length(); ++i) into[i] = std::atomic_ref<float>(parameters_[i]).load(std::memory_order_relaxed);
}

}  // namespace paceline::ps
