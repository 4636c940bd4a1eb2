// Local SGD (Stich, 2019): each worker trains its own replica, and every `period` steps the replicas become their mean.
//   every H steps: w_i ← (1/M) Σ_j w_j
// Post-local SGD (Lin et al., 2020): before epoch `post_local_epoch` they meet at every step, as long as the rate is high.
#include "paceline/data_parallel/meeting.h"

namespace paceline::data_parallel {
namespace {

class LocalSgdMeeting final : public Meeting {
 public:
  LocalSgdMeeting(const MeetingSetup& setup, const LocalSgdOptions& options) : Meeting(setup), options_(options) {}

  std::int64_t meet(const step::Point& point) override {
    const bool together = point.epoch < options_.post_local_epoch;
    return together || point.step % options_.period == 0 ? average(parameters()) : 0;
  }

 private:
  LocalSgdOptions options_;
};

}  // namespace

std::unique_ptr<Meeting> make_local_sgd_meeting(const MeetingSetup& setup, const LocalSgdOptions& options) {
  return std::make_unique<LocalSgdMeeting>(setup, options);
}

}  // namespace paceline::data_parallel
