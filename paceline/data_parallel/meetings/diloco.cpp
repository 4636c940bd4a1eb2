// DiLoCo (Douillard et al., 2023): the workers' progress over `period` steps is the gradient of an outer Nesterov step.
//   every H steps: Δ = θ − (1/M) Σ_i w_i;  v ← μ v + Δ;  θ ← θ − η (Δ + μ v);  w_i ← θ
// The inner optimizer is the worker's own; its state stays there.
#include <ATen/ATen.h>

#include "paceline/data_parallel/meeting.h"

namespace paceline::data_parallel {
namespace {

class DiLoCoMeeting final : public Meeting {
 public:
  DiLoCoMeeting(const MeetingSetup& setup, const DiLoCoOptions& options) : Meeting(setup), options_(options) { prepare(); }

  void prepare() override {
    outer_ = parameters().clone();
    velocity_ = at::zeros_like(outer_);
  }

  std::int64_t meet(const step::Point& point) override {
    if (point.step % options_.period != 0) return 0;
    at::Tensor replica = parameters();
    const std::int64_t sent = average(replica);
    const at::Tensor progress = outer_ - replica;
    velocity_.mul_(options_.outer_momentum).add_(progress);
    outer_.sub_(progress.add(velocity_, options_.outer_momentum), options_.outer_rate);
    replica.copy_(outer_);
    return sent;
  }

  std::vector<step::NamedTensor> memory() override { return {{"outer", outer_}, {"velocity", velocity_}}; }

 private:
  DiLoCoOptions options_;
  at::Tensor outer_, velocity_;  // [length]; the same on all workers
};

}  // namespace

std::unique_ptr<Meeting> make_diloco_meeting(const MeetingSetup& setup, const DiLoCoOptions& options) {
  return std::make_unique<DiLoCoMeeting>(setup, options);
}

}  // namespace paceline::data_parallel
