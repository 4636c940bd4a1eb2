// Elastic averaging SGD (Zhang, Choromanska, LeCun, 2015), as DeepSpark uses it: workers and a centre attract each other.
//   every τ steps: e_i = α (x_i − x̃);  x_i ← x_i − e_i;  x̃ ← x̃ + Σ_i e_i
// Every worker has a copy of the centre; the copies stay equal, because Σ_i e_i is an allreduce. Evaluations use the centre.
#include <ATen/ATen.h>

#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/meeting.h"

namespace paceline::data_parallel {
namespace {

class ElasticMeeting final : public Meeting {
 public:
  ElasticMeeting(const MeetingSetup& setup, const ElasticOptions& options) : Meeting(setup), options_(options) { prepare(); }

  void prepare() override {
    centre_ = parameters().clone();
    pull_ = allocate_from(comm())(parameters().numel(), parameters().options());
  }

  std::int64_t meet(const step::Point& point) override {
    if (point.step % options_.period != 0) return 0;
    const double workers = comm().size(), alpha = options_.elasticity > 0 ? options_.elasticity : 0.9 / workers;
    at::Tensor replica = parameters();
    at::sub_out(pull_, replica, centre_);
    replica.add_(pull_, -alpha);
    const std::int64_t sent = average(pull_);
    centre_.add_(pull_, alpha * workers);
    return sent;
  }

  void agree() override { parameters().copy_(centre_); }
  std::vector<step::NamedTensor> memory() override { return {{"centre", centre_}}; }

 private:
  ElasticOptions options_;
  at::Tensor centre_, pull_;  // [length]
};

}  // namespace

std::unique_ptr<Meeting> make_elastic_meeting(const MeetingSetup& setup, const ElasticOptions& options) {
  return std::make_unique<ElasticMeeting>(setup, options);
}

}  // namespace paceline::data_parallel
