// Gossip SGD: after every step each worker averages its replica with that of one neighbour, which is drawn for every step.
//   w_i ← (w_i + w_j) / 2
// The pairs are a random matching of all workers, drawn from the run's seed, so that all workers compute the same one; with an odd number
// of workers, one has no partner.
#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "paceline/base/random.h"
#include "paceline/data_parallel/exchange_memory.h"
#include "paceline/data_parallel/meeting.h"
#include "paceline/data_parallel/pending.h"

namespace paceline::data_parallel {
namespace {

class GossipMeeting final : public Meeting {
 public:
  explicit GossipMeeting(const MeetingSetup& setup) : Meeting(setup) { prepare(); }

  void prepare() override { neighbour_ = allocate_from(comm())(parameters().numel(), parameters().options()); }

  std::int64_t meet(const step::Point& point) override {
    const int other = partner(point.step);
    if (other == comm().rank()) return 0;
    at::Tensor replica = parameters();
    const comm::Buffer mine = replica;
    const Pending sent(comm().start(comm::send(mine, other)));
    comm().run(comm::receive(neighbour_, other));
    sent.wait();
    at::add_out(replica, replica, neighbour_).mul_(0.5);
    return mine.bytes();
  }

 private:
  int partner(std::int64_t step) const {
    std::vector<int> order(static_cast<std::size_t>(comm().size()));
    std::iota(order.begin(), order.end(), 0);
    RandomStream(seed(), Purpose::gossip, 0, static_cast<std::uint64_t>(step)).shuffle(std::span(order));
    const auto place = std::find(order.begin(), order.end(), comm().rank()) - order.begin();
    const auto other = place ^ 1;
    return other < std::ssize(order) ? order[static_cast<std::size_t>(other)] : comm().rank();
  }

  at::Tensor neighbour_;  // [length]
};

}  // namespace

std::unique_ptr<Meeting> make_gossip_meeting(const MeetingSetup& setup) { return std::make_unique<GossipMeeting>(setup); }

}  // namespace paceline::data_parallel
