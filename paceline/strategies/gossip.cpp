// Gossip SGD: after every step each worker averages its replica with that of one neighbour, drawn anew for every step.
//   w_i ← (w_i + w_j) / 2
// The pairs are a random matching of all workers, drawn from the run's seed, so that all know it without asking; with an odd number of
// workers one stays alone.
#include <ATen/ATen.h>

#include <numeric>

#include "paceline/base/random.h"
#include "paceline/data_parallel/buffer.h"
#include "paceline/data_parallel/pending.h"
#include "paceline/strategies/all.h"
#include "paceline/strategies/replicas.h"

namespace paceline::strategies {
namespace {

class Gossip final : public Replicas {
 public:
  Gossip(const StrategyConfig& config, const step::Context& context)
      : Replicas(config, context, "pairs of workers exchange messages in host memory") {
    prepare();
  }

 private:
  void prepare() final { neighbour_ = data_parallel::allocate_from(context().comm)(parameters().numel(), parameters().options()); }

  int partner(std::int64_t step) {
    std::vector<int> order(static_cast<std::size_t>(context().workers()));
    std::iota(order.begin(), order.end(), 0);
    RandomStream(context().seed, Purpose::gossip, 0, static_cast<std::uint64_t>(step)).shuffle(std::span(order));
    const auto place = std::find(order.begin(), order.end(), context().rank()) - order.begin();
    const auto other = place ^ 1;
    return other < std::ssize(order) ? order[static_cast<std::size_t>(other)] : context().rank();
  }

  void meet(const step::Point& point) override {
    const int other = partner(point.step);
    if (other == context().rank()) return;
    at::Tensor replica = parameters();
    const comm::Buffer mine = data_parallel::buffer_of(replica, 0, replica.numel());
    const data_parallel::Pending sent(context().comm.start(comm::send(mine, other)));
    context().comm.run(comm::receive(data_parallel::buffer_of(neighbour_, 0, neighbour_.numel()), other));
    sent.wait();
    at::add_out(replica, replica, neighbour_).mul_(0.5);
    count_bytes(mine.bytes());
  }

  at::Tensor neighbour_;  // [length]
};

}  // namespace

std::unique_ptr<step::Strategy> make_gossip(const StrategyConfig& config, const step::Context& context) {
  return std::make_unique<Gossip>(config, context);
}

}  // namespace paceline::strategies
